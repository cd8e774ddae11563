// SPDX-License-Identifier: Apache-2.0
// A tokenizer of BPE on characters, as SentencePiece's BPE models have become in Hugging Face's
// format (Llama 2, Mistral, Gemma): a space is ▁ (U+2581), and a character that is no token becomes
// its bytes, each the token <0xHH>.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/tokenize/added_tokens.h"
#include "trainer/data/tokenize/bpe.h"
#include "trainer/data/tokenize/normalizer.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {

// A step of normalisation: a normal form, else every `from` becomes `to`, or, without `from`, `to`
// is put before a text that is not empty.
struct TextStep {
  std::optional<NormalForm> form;
  std::string from;
  std::string to;
};

// Spaces become `mark`, which is also put before a text that does not begin with it.
struct Metaspace {
  enum class Prepend { kAlways, kFirst, kNever };  // kFirst: before the document's beginning
  std::string mark;
  Prepend prepend = Prepend::kAlways;
  bool splits = true;  // pieces begin with the mark
};

// Checked: ids are from 0 to vocabulary - 1, and merges of tokens that there are.
struct CharacterParts {
  std::vector<AddedToken> added;
  std::vector<TextStep> steps;
  std::optional<Metaspace> metaspace;
  std::string split_behind;  // pieces end with it; "" = none do
  TokensByBytes tokens;
  std::vector<BpeMerge> merges;
  std::array<int32_t, 256> bytes{};  // the tokens <0x00> to <0xFF>
  bool ignore_merges = false;        // a piece that is a token is that token
  uint64_t vocabulary = 0;
};

std::unique_ptr<Tokenizer> make_character_tokenizer(CharacterParts parts);

}  // namespace hpctl
