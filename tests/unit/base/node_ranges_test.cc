// SPDX-License-Identifier: Apache-2.0
#include "common/slurm/node_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace hpctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kRoom = 16U << 10;

TEST(NodeRanges, AreWrittenAsSlurmDoes) {
  EXPECT_EQ(to_node_ranges({}, kRoom), "");
  EXPECT_EQ(to_node_ranges({"n0"}, kRoom), "n0");
  EXPECT_EQ(to_node_ranges({"p5-2", "p5-1", "p5-3", "p5-7", "head"}, kRoom), "p5-[1-3,7],head");
  EXPECT_EQ(to_node_ranges({"n09", "n10", "n08", "n1"}, kRoom), "n[1,08-10]");
  EXPECT_EQ(to_node_ranges({"ip-10-0-1-2", "ip-10-0-1-3"}, kRoom), "ip-10-0-1-[2-3]");
  EXPECT_EQ(to_node_ranges({"a,b", "c[1]", "ok"}, kRoom), "ok") << "would not come back";
}

TEST(NodeRanges, ComeBack) {
  std::vector<std::string> names;
  for (int i = 1; i <= 1'000; ++i) names.push_back("p5-" + std::to_string(i));
  for (int i = 0; i < 20; ++i) names.push_back("ip-10-0-" + std::to_string(7 * i) + "-007");
  names.emplace_back("n99999999999999");
  names.emplace_back("login");
  const std::string text = to_node_ranges(names, kRoom);
  auto back = from_node_ranges(text, 10'000);
  ASSERT_TRUE(back.ok()) << back.error().message;
  std::sort(names.begin(), names.end());
  std::sort(back->begin(), back->end());
  EXPECT_EQ(*back, names);
}

TEST(NodeRanges, AreBounded) {
  std::vector<std::string> names;
  for (int i = 0; i < 1'000; ++i) names.push_back("n" + std::to_string(2 * i));
  const std::string text = to_node_ranges(names, 100);
  EXPECT_LE(text.size(), 100U);
  const auto some = from_node_ranges(text, 10'000);
  ASSERT_TRUE(some.ok()) << text;
  EXPECT_GT(some->size(), 20U) << "as many as there is room for";
  EXPECT_EQ(from_node_ranges("n[1-999999999]", 5)->size(), 5U);
  EXPECT_THAT(*from_node_ranges("", 5), IsEmpty());
  EXPECT_THAT(*from_node_ranges("a,b-[07-08]", 5), ElementsAre("a", "b-07", "b-08"));
}

TEST(NodeRanges, WhatIsNoneIsRefused) {
  for (const char* text : {",", "a,,b", "n[", "n[]", "n[1", "n[x]", "n[2-1]", "n[1-]", "n[1]x",
                           "n[-1]", "n[1234567890]", "n[1,,2]"}) {
    EXPECT_FALSE(from_node_ranges(text, 100).ok()) << text;
  }
}

}  // namespace
}  // namespace hpctl
