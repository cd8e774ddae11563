// SPDX-License-Identifier: Apache-2.0
#include "common/jobfile/yaml_value.h"

#include <gtest/gtest.h>

#include "common/jobfile/nearest_word.h"

namespace hpctl {
namespace {

TEST(Duration, AcceptsUnitsAndSlurmTimes) {
  EXPECT_EQ(*parse_duration_ms("500ms"), 500);
  EXPECT_EQ(*parse_duration_ms("2s"), 2000);
  EXPECT_EQ(*parse_duration_ms("30m"), 1'800'000);
  EXPECT_EQ(*parse_duration_ms("1h"), 3'600'000);
  EXPECT_EQ(*parse_duration_ms("2d"), 172'800'000);
  EXPECT_EQ(*parse_duration_ms("7-00:00:00"), 604'800'000);
  EXPECT_EQ(*parse_duration_ms("1-02:03:04"), 93'784'000);
  EXPECT_EQ(*parse_duration_ms("00:30:00"), 1'800'000);
  EXPECT_EQ(*parse_duration_ms("0s"), 0);
}

TEST(Duration, RefusesTheRest) {
  for (const char* text :
       {"",    "5",         "s",    "-1s",          "1.5h", "1 h", "1H",          "1w",
        "1:2", "1:2:3:4",   "1-1",  "0:60:0",       "1:",   "::",  "9999999999s", "1s ",
        "7-",  "-00:00:01", "400d", "366-00:00:00", "1e3s"}) {
    EXPECT_FALSE(parse_duration_ms(text).ok()) << text;
  }
}

TEST(Duration, FormatsWhatItReads) {
  for (const int64_t ms : {0L, 1L, 1500L, 2000L, 60'000L, 90'000L, 3'600'000L, 86'400'000L}) {
    EXPECT_EQ(*parse_duration_ms(format_duration_ms(ms)), ms);
  }
  EXPECT_EQ(format_duration_ms(3'600'000), "1h");
  EXPECT_EQ(format_duration_ms(90'000), "90s");
  EXPECT_EQ(format_duration_ms(0), "0s");
}

TEST(TimeLimit, AcceptsWhatSbatchDoesAndDurations) {
  EXPECT_EQ(*parse_time_limit_minutes("0"), 0);
  EXPECT_EQ(*parse_time_limit_minutes("90"), 90);
  EXPECT_EQ(*parse_time_limit_minutes("30:00"), 30);
  EXPECT_EQ(*parse_time_limit_minutes("0:30"), 1);  // rounded up
  EXPECT_EQ(*parse_time_limit_minutes("2:00:00"), 120);
  EXPECT_EQ(*parse_time_limit_minutes("1-12"), 2160);
  EXPECT_EQ(*parse_time_limit_minutes("1-12:30"), 2190);
  EXPECT_EQ(*parse_time_limit_minutes("7-00:00:00"), 10'080);
  EXPECT_EQ(*parse_time_limit_minutes("90s"), 2);
  EXPECT_EQ(*parse_time_limit_minutes("7d"), 10'080);
  for (const char* text : {"", "-1", "1:2:3:4", "1-", "x", "1-1:1:1:1", "1 day", "366-0", "1:"}) {
    EXPECT_FALSE(parse_time_limit_minutes(text).ok()) << text;
  }
  EXPECT_EQ(format_time_limit(2190), "1-12:30:00");
}

TEST(Memory, AcceptsWhatSbatchDoes) {
  EXPECT_EQ(*parse_memory_mib("0"), 0);
  EXPECT_EQ(*parse_memory_mib("512"), 512);
  EXPECT_EQ(*parse_memory_mib("1K"), 1);
  EXPECT_EQ(*parse_memory_mib("64G"), 65'536);
  EXPECT_EQ(*parse_memory_mib("2T"), 2'097'152);
  for (const char* text : {"", "G", "-1", "1.5G", "5X", "5GB"}) {
    EXPECT_FALSE(parse_memory_mib(text).ok()) << text;
  }
}

TEST(PlainText, RefusesWhatJsonCannotCarry) {
  EXPECT_TRUE(is_plain_text("plain\ttext\n"));
  EXPECT_TRUE(is_plain_text("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"));
  EXPECT_FALSE(is_plain_text(std::string_view("a\0b", 3)));
  EXPECT_FALSE(is_plain_text("\x1b[31m"));
  EXPECT_FALSE(is_plain_text("\xff"));
  EXPECT_FALSE(is_plain_text("\xc3"));              // cut off
  EXPECT_FALSE(is_plain_text("\xc0\xaf"));          // overlong
  EXPECT_FALSE(is_plain_text("\xed\xa0\x80"));      // surrogate
  EXPECT_FALSE(is_plain_text("\xf4\x90\x80\x80"));  // beyond U+10FFFF
}

TEST(NearestWord, FindsTyposButNotStrangers) {
  const std::vector<std::string> words = {"status", "submit", "events", "nodes"};
  EXPECT_EQ(nearest_word("statsu", words), "status");
  EXPECT_EQ(nearest_word("sumbit", words), "submit");
  EXPECT_EQ(nearest_word("node", words), "nodes");
  EXPECT_EQ(nearest_word("frobnicate", words), std::nullopt);
  EXPECT_EQ(nearest_word("", words), std::nullopt);
  EXPECT_EQ(edit_distance("abc", "acb"), 1U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

}  // namespace
}  // namespace hpctl
