// SPDX-License-Identifier: Apache-2.0
// A tokenizer of byte-level BPE, made of its parts. Each file format is a reader of these parts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/data/tokenize/bpe.h"
#include "trainer/data/tokenize/text_rules.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {

// Checked: ids are from 0 to vocabulary - 1, and merges of tokens that there are.
struct BpeParts {
  TextRules text;
  TokensByBytes tokens;
  std::vector<BpeMerge> merges;
  std::vector<uint32_t> ranks;  // of the merges; none: their order
  bool ignore_merges = false;   // a piece that is a token is that token
  uint64_t vocabulary = 0;
};

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts);

}  // namespace hpctl
