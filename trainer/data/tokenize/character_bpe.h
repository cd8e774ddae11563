// SPDX-License-Identifier: Apache-2.0
// A tokenizer of BPE on characters. So are SentencePiece's BPE models in Hugging Face's format
// (Llama 2, Mistral, Gemma): a space is ▁ (U+2581), and a character that is no token becomes its
// bytes, each the token <0xHH>. Other models have a token for what they do not know, "[UNK]".
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/data/tokenize/bpe.h"
#include "trainer/data/tokenize/text_rules.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {

// Checked: ids are from 0 to vocabulary - 1, and merges of tokens that there are.
struct CharacterParts {
  TextRules text;
  TokensByBytes tokens;
  std::vector<BpeMerge> merges;
  // Of a character that is no token: its bytes, the tokens <0x00> to <0xFF>, else this token.
  // Without either, text with such a character is an error.
  std::optional<std::array<int32_t, 256>> bytes;
  std::optional<int32_t> unknown;
  bool fuses_unknown = false;  // neighbours that are unknown become one token
  bool ignore_merges = false;  // a piece that is a token is that token
  uint64_t vocabulary = 0;
};

std::unique_ptr<Tokenizer> make_character_tokenizer(CharacterParts parts);

}  // namespace hpctl
