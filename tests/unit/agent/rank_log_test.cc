// SPDX-License-Identifier: Apache-2.0
// Rotation, the last line, and a log that is appended to.
#include "agent/rank_log.h"

#include "tests/unit/agent/node_fixture.h"

namespace hpctl {
namespace {

using test::text_of;

TEST(RankLog, RotatesAndKeepsTheNewestFiles) {
  const test::TemporaryHome home;
  const std::string path = home.path() + "/logs/rank-0.log";
  RankLog log(path, 100);
  for (int i = 0; i < 50; ++i) log.line("line " + std::to_string(i) + " " + std::string(20, '.'));
  EXPECT_EQ(list_directory(home.path() + "/logs")->size(), static_cast<size_t>(kRankLogFiles));
  std::string all;
  for (const char* suffix : {".2", ".1", ""}) {
    const std::string part = text_of(path + suffix);
    EXPECT_LE(part.size(), 100U);
    all += part;
  }
  EXPECT_NE(all.find("line 49 "), std::string::npos);
  EXPECT_NE(all.find("line 43 "), std::string::npos) << "no line between the files is lost";
  EXPECT_EQ(all.find("line 0 "), std::string::npos);
}

TEST(RankLog, AppendsToWhatEarlierGenerationsWrote) {
  const test::TemporaryHome home;
  const std::string path = home.path() + "/rank-0.log";
  RankLog(path).line("first");
  RankLog(path).line("second");
  EXPECT_EQ(text_of(path), "first\nsecond\n");
}

TEST(RankLog, LastLineIsTheLastThatSaysSomething) {
  const test::TemporaryHome home;
  struct Case {
    std::string output;
    std::string expected;
  };
  const Case cases[] = {{"", ""},
                        {"one\n", "one"},
                        {"one\ntwo", "two"},
                        {"one\n\n  \n", "one"},
                        {"\n\n", ""},
                        {std::string(5000, 'x') + "\n", std::string(300, 'x')}};
  for (const Case& one : cases) {
    RankLog log(home.path() + "/rank-0.log");
    auto write_end = log.make_pipe();
    ASSERT_TRUE(write_end.ok());
    ASSERT_TRUE(write_all(write_end->get(), one.output, "pipe").ok());
    EXPECT_TRUE(log.drain());
    write_end->reset();
    EXPECT_FALSE(log.drain()) << "end of file";
    EXPECT_EQ(log.last_line(), one.expected);
  }
}

}  // namespace
}  // namespace hpctl
