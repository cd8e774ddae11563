// SPDX-License-Identifier: Apache-2.0
// Rotation, the last line, a log that is appended to, and a file server that does not answer. A
// FIFO without a reader stands in for the server: its open() and write() block in the same way.
#include "agent/holder/rank_log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <thread>

#include "common/base/rotating_log.h"
#include "tests/unit/agent/node_fixture.h"

namespace hpctl {
namespace {

using test::text_of;

constexpr int64_t kLongMs = 60'000;
constexpr size_t kHalf = kLogQueueBytes / 2;
const std::string kTraceback = "Traceback (most recent call last):\n";

class RankLogTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(writer_.start().ok()); }
  // The process writes into the directory until it has ended.
  void TearDown() override { writer_.finish(kLongMs); }

  test::TemporaryHome home_;
  LogWriter writer_;
};

// A reader of a FIFO, from its start to its end.
class FifoReader {
 public:
  explicit FifoReader(const std::string& path)
      : thread_([this, path] {
          const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
          const auto text = read_all(fd.get(), path, SIZE_MAX);
          if (text.ok()) text_ = *text;
        }) {}
  std::string text() {
    thread_.join();
    return text_;
  }

 private:
  std::string text_;
  std::thread thread_;
};

TEST_F(RankLogTest, RotatesAndKeepsTheNewestFiles) {
  const std::string path = home_.path() + "/logs/rank-0.log";
  RankLog log(writer_, path, 100);
  for (int i = 0; i < 50; ++i) log.line("line " + std::to_string(i) + " " + std::string(20, '.'));
  writer_.finish(kLongMs);
  EXPECT_EQ(list_directory(home_.path() + "/logs")->size(), static_cast<size_t>(kLogFiles));
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

TEST_F(RankLogTest, AppendsToWhatEarlierGenerationsWrote) {
  const std::string path = home_.path() + "/rank-0.log";
  RankLog(writer_, path).line("first");
  RankLog(writer_, path).line("second");
  writer_.finish(kLongMs);
  EXPECT_EQ(text_of(path), "first\nsecond\n");
}

TEST_F(RankLogTest, LastLineIsTheLastThatSaysSomething) {
  struct Case {
    std::string output;
    std::string expected;
  };
  const Case cases[] = {{"", ""},
                        {"one\n", "one"},
                        {"one\ntwo", "two"},
                        {"one\n\n  \n", "one"},
                        {"\n\n", ""},
                        {std::string(5000, 'x') + "\n", std::string(300, 'x')},
                        {kTraceback + "KeyError: 'a'\n\r 0%\n", "\r 0%"}};
  for (const Case& one : cases) {
    RankLog log(writer_, home_.path() + "/rank-0.log");
    auto write_end = log.make_pipe();
    ASSERT_TRUE(write_end.ok());
    ASSERT_TRUE(write_all(write_end->get(), one.output, "pipe").ok());
    EXPECT_TRUE(log.drain());
    write_end->reset();
    EXPECT_FALSE(log.drain()) << "end of file";
    EXPECT_EQ(log.last_line(), one.expected);
    if (one.output.starts_with(kTraceback)) {
      EXPECT_EQ(log.last_words(), "KeyError: 'a'");
    } else {
      EXPECT_EQ(log.last_words(), one.expected);
    }
  }
}

// The holder that wrote logs itself was taken for hung after 5 s, and was killed.
TEST_F(RankLogTest, StalledFileServerCostsOnlyCountedBytes) {
  const std::string path = home_.path() + "/rank-0.log";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const std::string bytes(65'535, 'x');
  LogPiece piece{path, UINT64_MAX, 0, bytes};
  size_t accepted = 0;
  const auto fill = [&] { return writer_.append(piece) && ++accepted * bytes.size() > kHalf; };
  EXPECT_TRUE(test::eventually(fill)) << "a short pause loses nothing";
  // Nothing waits any more: so many drops would take half an hour with a wait in each.
  for (int dropped = 0; dropped < 20'000; ++dropped) {
    if (!writer_.append(piece)) continue;
    ++accepted;
    dropped = 0;
  }
  EXPECT_LE(accepted * bytes.size(), kLogQueueBytes + (size_t{1} << 20));

  FifoReader reader(path);
  piece.lost_bytes = 12'345;
  piece.bytes = "it goes on\n";
  ASSERT_TRUE(test::eventually([&] { return writer_.append(piece); }));
  writer_.finish(kLongMs);
  const std::string expected =
      "[hpctl: 12345 bytes lost while the file server did not answer]\nit goes on\n";
  const std::string text = reader.text();
  EXPECT_EQ(text.size(), accepted * bytes.size() + expected.size());
  EXPECT_TRUE(text.ends_with(expected)) << text.substr(text.size() - 100);
}

TEST_F(RankLogTest, LostBytesAreCountedPerLog) {
  const std::string path = home_.path() + "/rank-0.log";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  RankLog stalled(writer_, path, UINT64_MAX);
  const std::string bytes(65'535, 'x');
  const LogPiece piece{path, UINT64_MAX, 0, bytes};
  for (int dropped = 0; dropped < 20'000; ++dropped) {
    if (writer_.append(piece)) dropped = 0;
  }
  stalled.line("nobody reads this");
  FifoReader reader(path);
  const std::string other = home_.path() + "/rank-1.log";
  ASSERT_TRUE(test::eventually([&] { return writer_.append({other, UINT64_MAX, 0, "whole\n"}); }));
  stalled.line("but this");
  writer_.finish(kLongMs);
  EXPECT_TRUE(reader.text().ends_with(
      "[hpctl: 18 bytes lost while the file server did not answer]\nbut this\n"));
  EXPECT_EQ(text_of(other), "whole\n");
}

TEST_F(RankLogTest, NextWriterGetsWhatTheDeadOneLeft) {
  const std::string path = home_.path() + "/rank-0.log";
  pid_t first = -1;
  const auto find = [&] { return child_named(writer_.keeper(), "hp-log-writer"); };
  ASSERT_TRUE(test::eventually([&] { return (first = find()) > 0; }));
  const UniqueFd process = open_pidfd(first);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  ASSERT_TRUE(await_end(process));
  RankLog(writer_, path).line("between");
  ASSERT_TRUE(test::eventually([&] { return find() > 0 && find() != first; }));
  RankLog(writer_, path).line("after");
  writer_.finish(kLongMs);
  EXPECT_EQ(text_of(path), "between\nafter\n");
}

// A mount that comes late, or is away for a moment.
TEST_F(RankLogTest, FileThatCannotBeOpenedIsTriedAgain) {
  const std::string directory = home_.path() + "/mount";
  ASSERT_TRUE(write_file_atomic(directory, "not a directory yet").ok());
  const std::string path = directory + "/rank-0.log";
  RankLog log(writer_, path);
  log.line("early");
  const std::string next = home_.path() + "/rank-1.log";
  RankLog(writer_, next).line("so the line before was tried");
  ASSERT_TRUE(test::eventually([&] { return !text_of(next).empty(); }));
  ASSERT_EQ(::unlink(directory.c_str()), 0);
  EXPECT_TRUE(test::eventually([&] {
    log.line("x");
    return text_of(path).find(" could not be written here]\nx\n") != std::string::npos;
  }));
}

}  // namespace
}  // namespace hpctl
