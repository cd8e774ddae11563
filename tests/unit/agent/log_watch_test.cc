// SPDX-License-Identifier: Apache-2.0
// Which lines of a rank's output count for recovery.hang_rules, and how much is searched at most.
#include "agent/holder/log_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>

namespace hpctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LinePattern pattern(const std::string& text) {
  auto compiled = LinePattern::compile(text);
  EXPECT_TRUE(compiled.ok()) << text;
  return std::move(compiled).value();
}

TEST(LinePattern, IsFoundAnywhereInTheLine) {
  EXPECT_TRUE(pattern("loss=\\d").is_in("step 4 loss=2.5"));
  EXPECT_FALSE(pattern("^loss=").is_in("step 4 loss=2.5"));
  EXPECT_TRUE(pattern("").is_in(""));
}

TEST(LinePattern, SaysWhatIsWrong) {
  for (const char* wrong : {"loss=(", "a{2,1}", "(?=ahead)", "(a)\\1", "[z-a]"}) {
    const auto compiled = LinePattern::compile(wrong);
    ASSERT_FALSE(compiled.ok()) << wrong;
    EXPECT_EQ(compiled.error().code, ErrorCode::kInvalidArgument);
    EXPECT_FALSE(compiled.error().message.empty()) << wrong;
  }
  EXPECT_THAT(LinePattern::compile("loss=(").error().message, HasSubstr("missing )"));
}

// A backtracking matcher takes 2^40 steps for this line.
TEST(LinePattern, TakesLinearTime) {
  const LinePattern nested = pattern("(a*)*b");
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_FALSE(nested.is_in(std::string(kWatchedLineBytes, 'a')));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
}

TEST(LogWatch, ALineThatMatchesIsTimed) {
  LogWatch watch({pattern("loss="), pattern("saved")});
  EXPECT_TRUE(watch.take_news()) << "nobody knows yet that none has matched";
  EXPECT_THAT(watch.matched_ms(), ElementsAre(0, 0));
  watch.read("loading\nstep 1 lo", 1'000);
  EXPECT_FALSE(watch.take_news());
  watch.read("ss=2\n", 2'000);
  EXPECT_TRUE(watch.take_news());
  EXPECT_THAT(watch.matched_ms(), ElementsAre(2'000, 0));
  watch.read("saved", 3'000);
  EXPECT_THAT(watch.matched_ms(), ElementsAre(2'000, 0)) << "the line has not ended";
  EXPECT_FALSE(watch.take_news());
  watch.forget_taken();
  EXPECT_TRUE(watch.take_news()) << "another agent reads it";
}

// tqdm writes no newline until the end.
TEST(LogWatch, AProgressBarIsALineEachTime) {
  LogWatch watch({pattern("\\d+/300")});
  watch.read("\r  1%| 3/300", 1'000);
  EXPECT_THAT(watch.matched_ms(), ElementsAre(0));
  watch.read("\r  2%| 6/300", 2'000);
  EXPECT_THAT(watch.matched_ms(), ElementsAre(2'000));
}

TEST(LogWatch, SearchesOnlyTheBeginningOfALongLine) {
  LogWatch watch({pattern("end$"), pattern("^begin")});
  watch.read("begin" + std::string(3 * kWatchedLineBytes, '.') + "end\n", 1'000);
  EXPECT_THAT(watch.matched_ms(), ElementsAre(0, 1'000));
}

TEST(LogWatch, APatternThatHasJustMatchedRests) {
  LogWatch watch({pattern("x")});
  watch.read("x\n", 1'000);
  ASSERT_TRUE(watch.take_news());
  watch.read("x\n", 1'000 + kWatchPauseMs - 1);
  EXPECT_FALSE(watch.take_news());
  watch.read("x\n", 1'000 + kWatchPauseMs);
  EXPECT_TRUE(watch.take_news());
}

// The holder has to show life. What it has not read proves no silence.
TEST(LogWatch, AFloodOfOutputCountsAsAMatch) {
  LogWatch watch({pattern("never")});
  const std::string piece(65'536, '.');
  for (size_t sent = 0; sent < kWatchedBytesPerSecond; sent += piece.size()) {
    watch.read(piece, 1'000);
  }
  EXPECT_THAT(watch.matched_ms(), ElementsAre(0));
  watch.read(piece, 1'500);
  EXPECT_THAT(watch.matched_ms(), ElementsAre(1'500));
  watch.read(piece, 2'500);
  EXPECT_THAT(watch.matched_ms(), ElementsAre(1'500)) << "another second";
}

// RE2 has a state for each of the last 500 bytes, more than its table holds: a line takes
// milliseconds, and a second of such output would have kept the holder for many.
TEST(LogWatch, APatternThatIsSlowToSearchIsGivenUpForTheSecond) {
  LogWatch watch({pattern("[ab]*a[ab]{500}c")});
  std::string line;
  uint32_t random = 1;
  while (line.size() + 1 < kWatchedLineBytes) {
    random = random * 1'664'525U + 1'013'904'223U;
    line += (random >> 31U) != 0 ? 'a' : 'b';
  }
  line += '\n';
  const std::clock_t begun = std::clock();
  size_t lines = 0;
  for (; lines < 1'000 && watch.matched_ms()[0] == 0; ++lines) watch.read(line, 1'000);
  EXPECT_LT(std::clock() - begun, 5 * CLOCKS_PER_SEC) << "for " << lines << " lines";
  watch.read("cannot match\n", 2'000);
  EXPECT_NE(watch.matched_ms()[0], 2'000) << "another second";
}

}  // namespace
}  // namespace hpctl
