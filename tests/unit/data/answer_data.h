// SPDX-License-Identifier: Apache-2.0
// Datasets of format sft, without a tokenizer: a token is a byte.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/file.h"
#include "trainer/data/indexed_dataset.h"
#include "trainer/data/prepared_note.h"

namespace hpctl::test {

using Pair = std::pair<std::string, std::string>;

// Nothing is put behind an answer.
inline void put_answers(const std::string& prefix, const std::vector<Pair>& pairs) {
  std::string tokens;
  std::vector<int32_t> lengths;
  PreparedNote note;
  note.tokenizer = "byte";
  note.vocabulary = 256;
  note.format = DataFormat::kSft;
  for (const auto& [prompt, answer] : pairs) {
    tokens += prompt + answer;
    lengths.push_back(static_cast<int32_t>(prompt.size()));
    lengths.push_back(static_cast<int32_t>(answer.size()));
    note.answer_tokens += answer.size();
  }
  note.documents = pairs.size();
  note.tokens = tokens.size();
  const std::vector<int32_t> documents(pairs.size(), 2);
  HP_CHECK(write_file_atomic(prefix + ".bin", tokens).ok());
  HP_CHECK(write_prepared_note(prefix, note).ok());
  HP_CHECK(write_index(prefix + ".idx", TokenType::kUint8, lengths, documents).ok());
}

// Prompts in small letters and digits, answers in capitals that end with an exclamation mark.
inline std::vector<Pair> sums(int count) {
  std::vector<Pair> pairs;
  for (int i = 0; i < count; ++i) {
    std::string answer(static_cast<size_t>(1 + i * i % 9), static_cast<char>('A' + i % 23));
    pairs.emplace_back(std::to_string(i) + " of " + std::string(static_cast<size_t>(i % 7), 'x'),
                       answer + "!");
  }
  return pairs;
}

}  // namespace hpctl::test
