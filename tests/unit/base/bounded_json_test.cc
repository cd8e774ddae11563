// SPDX-License-Identifier: Apache-2.0
// JSON of strangers: the same documents as the library gives, and none beyond the limits.
#include "common/base/bounded_json.h"

#include <gmock/gmock.h>

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

TEST(BoundedJson, TheProblemWithANumberSaysWhereItIs) {
  const auto problem = [](const char* text, const auto& read) -> std::string {
    const auto document = parse_json(text);
    try {
      read(document);
      return "none";
    } catch (const nlohmann::json::exception& e) {
      return problem_in(document, e);
    }
  };
  EXPECT_EQ(problem(R"({"nodes": [{"pid": 1}, {"pid": 2.5}]})",
                    [](const auto& d) {
                      for (const auto& node : d.at("nodes")) node.at("pid").template get<int>();
                    }),
            "/nodes/1/pid: expected a whole number from -2147483648 to 2147483647; found 2.5");
  EXPECT_EQ(problem(R"({"a": {"step": -1}})",
                    [](const auto& d) { d.at("a").value("step", uint32_t{0}); }),
            "/a/step: expected a whole number from 0 to 4294967295; found -1");
  EXPECT_EQ(
      problem("1e30", [](const auto& d) { d.template get<int64_t>(); }),
      "expected a whole number from -9223372036854775808 to 9223372036854775807; found 1e+30");
  EXPECT_EQ(
      problem(R"({"a\u0001": "x"})", [](const auto& d) { d.at("a\x01").template get<uint8_t>(); }),
      "/a?: expected a whole number from 0 to 255; found string");
  // Of a copy, which is nowhere in the document.
  EXPECT_EQ(problem("[2.5]", [](const auto& d) { nlohmann::json(d.at(0)).template get<int>(); }),
            "expected a whole number from -2147483648 to 2147483647; found 2.5");
  EXPECT_THAT(problem("{}", [](const auto& d) { d.at("step").template get<int>(); }),
              testing::HasSubstr("key 'step' not found"));
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
