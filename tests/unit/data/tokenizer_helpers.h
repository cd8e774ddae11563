// SPDX-License-Identifier: Apache-2.0
// What tests of tokenizers share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "trainer/data/tokenize/splitter.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl::test {

using Ids = std::vector<int32_t>;

inline Ids encode(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  const Outcome done = tokenizer.make_encoder()->encode(text, ids);
  EXPECT_TRUE(done.ok()) << done.error().message;
  return ids;
}

inline std::vector<std::string> pieces(const std::string& pattern, const std::string& text) {
  const auto compiled = SplitPattern::compile(pattern);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  std::vector<std::string_view> found;
  EXPECT_TRUE(Splitter(*compiled).split(text, found).ok());
  return {found.begin(), found.end()};
}

inline Ids encode_small(const nlohmann::json& document, const std::string& text) {
  const auto tokenizer = parse_tokenizer_json(document.dump(), "t.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return tokenizer.ok() ? encode(**tokenizer, text) : Ids();
}

inline std::string refusal(const nlohmann::json& document) {
  const auto tokenizer = parse_tokenizer_json(document.dump(), "t.json");
  return tokenizer.ok() ? "accepted" : tokenizer.error().message;
}

}  // namespace hpctl::test
