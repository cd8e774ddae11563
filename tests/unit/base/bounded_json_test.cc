// SPDX-License-Identifier: Apache-2.0
// JSON of strangers: the same documents as the library gives, and none beyond the limits.
#include "common/base/bounded_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace hpctl {
namespace {

std::string why(const std::string& text, const JsonLimits& limits = {}) {
  try {
    parse_json(text, limits);
    return "";
  } catch (const nlohmann::json::exception& e) {
    return e.what();
  }
}

bool says(const std::string& text, const std::string& words, const JsonLimits& limits = {}) {
  EXPECT_TRUE(parse_json_or_discard(text, limits).is_discarded());
  return why(text, limits).find(words) != std::string::npos;
}

TEST(BoundedJson, IsWhatTheLibraryReads) {
  for (const std::string text :
       {R"({"a": [1, -2, 3.5, true, null, "x"], "b": {"c": {}}, "a": [[]]})",
        "[18446744073709551615]", "[]", "{}", "7", "\"x\"", " [ { } , [ ] ] "}) {
    EXPECT_EQ(parse_json(text), nlohmann::json::parse(text)) << text;
    EXPECT_EQ(parse_json_or_discard(text), nlohmann::json::parse(text)) << text;
  }
}

TEST(BoundedJson, WhatIsNotJsonIsSaidWithItsPlace) {
  EXPECT_TRUE(says("{\"a\": }", "line 1, column 7"));
  EXPECT_TRUE(says("", "unexpected end of input"));
  EXPECT_TRUE(says("[1] 2", "column 5"));
  EXPECT_TRUE(says("\"\xff\"", "invalid"));
}

TEST(BoundedJson, WholeNumbersBeyond64BitsAreTheLastThatFit) {
  const auto found = parse_json("[18446744073709551616, -9223372036854775809, 1e300, 1.5]");
  EXPECT_EQ(found[0].get<int64_t>(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(found[0].get<uint64_t>(), 0x7fffffffffffffffU);
  EXPECT_EQ(found[1].get<int64_t>(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(found[2].get<double>(), 1e300);
  EXPECT_EQ(found[3].get<double>(), 1.5);
}

TEST(BoundedJson, DepthCannotExhaustTheStack) {
  const std::string deep(80'000, '[');
  EXPECT_TRUE(says(deep, "nested deeper than 64 levels"));
  EXPECT_TRUE(says(deep + std::string(80'000, ']'), "nested deeper than 64 levels"));
  EXPECT_TRUE(says("[[[]]]", "nested deeper than 2 levels", {.depth = 2}));
  EXPECT_EQ(why("[[], [], {\"a\": 1}]", {.depth = 2}), "");
}

TEST(BoundedJson, SizeAndNumberOfValuesAreBounded) {
  EXPECT_TRUE(says("[1, 2, 3]", "larger than 8 bytes", {.bytes = 8}));
  EXPECT_EQ(why("[1, 2, 3]", {.bytes = 9, .values = 4}), "");
  EXPECT_TRUE(says("[1, 2, 3]", "more than 3 values", {.values = 3}));
  EXPECT_TRUE(says("{\"a\": [[], []]}", "more than 3 values", {.values = 3}));
}

TEST(BoundedJson, NamesCanBeRequiredToDiffer) {
  EXPECT_TRUE(says(R"({"a": {"b": 1, "b": 2}})", "\"b\" is there twice", {.distinct_names = true}));
  EXPECT_EQ(why(R"({"a": {"b": 1}, "b": 2})", {.distinct_names = true}), "");
}

}  // namespace
}  // namespace hpctl
