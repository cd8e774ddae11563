// SPDX-License-Identifier: Apache-2.0
// Whole numbers in JSON: those that their reader's type holds, and nothing else.
#include "common/base/json.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace hpctl {
namespace {

using nlohmann::json;

// Through the library's own way in, and through the question; they agree.
template <typename T>
std::string read_as(const std::string& text) {
  const json value = json::parse(text);
  const auto asked = whole_number<T>(value);
  try {
    const T number = value.get<T>();
    EXPECT_EQ(asked, std::optional<T>(number)) << text;
    return std::to_string(number);
  } catch (const NotWhole& e) {
    EXPECT_EQ(asked, std::nullopt) << text;
    EXPECT_EQ(e.value(), &value);
    return "refused";
  }
}

TEST(Json, WholeNumbersAreReadUpToTheBoundsOfTheirType) {
  EXPECT_EQ(read_as<int64_t>("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(read_as<int64_t>("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(read_as<uint64_t>("9223372036854775808"), "9223372036854775808");
  EXPECT_EQ(read_as<uint64_t>("18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(read_as<uint64_t>("-0"), "0");
  EXPECT_EQ(read_as<int32_t>("-2147483648"), "-2147483648");
  EXPECT_EQ(read_as<uint32_t>("4294967295"), "4294967295");
  EXPECT_EQ(read_as<uint16_t>("65535"), "65535");
  EXPECT_EQ(read_as<int8_t>("-128"), "-128");
}

TEST(Json, NothingBeyondThemIsRead) {
  for (const char* beyond : {"9223372036854775808", "18446744073709551615", "18446744073709551616",
                             "-9223372036854775809", "1e30", "-1e30"}) {
    EXPECT_EQ(read_as<int64_t>(beyond), "refused") << beyond;
  }
  for (const char* beyond : {"-1", "18446744073709551616", "1e30"}) {
    EXPECT_EQ(read_as<uint64_t>(beyond), "refused") << beyond;
  }
  EXPECT_EQ(read_as<int32_t>("2147483648"), "refused");
  EXPECT_EQ(read_as<uint32_t>("4294967296"), "refused");
  EXPECT_EQ(read_as<uint16_t>("65536"), "refused");
  EXPECT_EQ(read_as<uint8_t>("-1"), "refused");
}

TEST(Json, WhatIsNoWholeNumberIsNotMadeOne) {
  for (const char* other : {"2.5", "3.0", "1e3", "true", "null", "\"7\"", "[]", "{}"}) {
    EXPECT_EQ(read_as<int64_t>(other), "refused") << other;
    EXPECT_EQ(read_as<uint8_t>(other), "refused") << other;
  }
  EXPECT_EQ(json::parse("[1e30, 2.5, 3, 18446744073709551616]").get<std::vector<double>>(),
            (std::vector<double>{1e30, 2.5, 3, 18446744073709551616.0}));
  EXPECT_TRUE(json::parse("true").get<bool>());
}

struct Row {
  uint16_t port = 1;
  int64_t step = 2;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Row, port, step)

TEST(Json, MembersOfListsMapsAndTypesAreReadAlike) {
  EXPECT_THROW(json::parse("[1, 2.5]").get<std::vector<int>>(), NotWhole);
  EXPECT_THROW(json::parse("[1, -1]").get<std::vector<uint32_t>>(), NotWhole);
  EXPECT_THROW((json::parse(R"({"a": 1e30})").get<std::map<std::string, int64_t>>()), NotWhole);
  EXPECT_THROW(json::parse(R"({"port": 65536})").get<Row>(), NotWhole);
  EXPECT_THROW(json::parse(R"({"step": 2.5})").get<Row>(), NotWhole);
  EXPECT_THROW(json::parse(R"({"n": 2.5})").value("n", 0), NotWhole);
  EXPECT_THROW(nlohmann::ordered_json::parse("2.5").get<int>(), NotWhole);
  uint64_t number = 7;
  EXPECT_THROW(json::parse("-1").get_to(number), NotWhole);
  EXPECT_EQ(number, 7U);
  const auto row = json::parse(R"({"port": 65535})").get<Row>();
  EXPECT_EQ(row.port, 65535);
  EXPECT_EQ(row.step, 2);
  EXPECT_EQ(json(row).dump(), R"({"port":65535,"step":2})");
}

}  // namespace
}  // namespace hpctl
