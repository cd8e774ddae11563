// SPDX-License-Identifier: Apache-2.0
// A process whose own log goes through a log writer. A pipe that the test does not read stands for
// a file on a server that does not answer.
#include <fcntl.h>

#include <thread>

#include "common/base/log.h"
#include "common/process/log_writer.h"
#include "tests/unit/agent/node_fixture.h"

namespace hpctl {
namespace {

using test::eventually;
using test::text_of;

constexpr int64_t kFinishMs = 60'000;
constexpr char kLost[] = " lines of this log are lost";

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

// A process with stderr `log` that runs `body` behind its log writer.
test::Child process_with_log(const UniqueFd& log, const std::function<void(LogWriter&)>& body) {
  return test::Child([&] {
    LogWriter writer;
    ::dup2(log.get(), STDERR_FILENO);
    if (!writer.start(OwnLog::kThroughWriter).ok()) return 1;
    body(writer);
    writer.finish(kFinishMs);
    return 0;
  });
}

UniqueFd file_at(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
}

// Ends when the test closes the other end.
bool is_open(const UniqueFd& pipe) {
  pollfd ended{pipe.get(), POLLIN, 0};
  return ::poll(&ended, 1, 1) == 0;
}

TEST(OwnLog, StalledFileCostsOnlyCountedLines) {
  Pipe log;
  Pipe until;
  Pipe filled;
  const int both_ends = until.write_end.get();
  test::Child process = process_with_log(log.write_end, [&](LogWriter&) {
    ::close(both_ends);
    const std::string line(1'000, 'x');
    bool writer_has_turns = true;  // it has them until it has all that it keeps
    for (size_t bytes = 0; bytes < 2 * kLogQueueBytes; bytes += line.size()) {
      pollfd writable{STDERR_FILENO, POLLOUT, 0};
      writer_has_turns = writer_has_turns && ::poll(&writable, 1, 2'000) == 1;
      log_info(line);
    }
    [[maybe_unused]] const ssize_t n = ::write(filled.write_end.get(), "f", 1);
    while (is_open(until.read_end)) log_info("it goes on");
  });
  log.write_end.reset();
  char byte = 0;
  ASSERT_EQ(::read(filled.read_end.get(), &byte, 1), 1) << "the process does not wait";
  std::string text;
  std::string chunk(1 << 16, '\0');
  for (ssize_t n = 1; n > 0;) {
    n = ::read(log.read_end.get(), chunk.data(), chunk.size());
    text.append(chunk, 0, static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (text.find(kLost) != std::string::npos) until.write_end.reset();
  }
  EXPECT_EQ(process.wait_for_end(), 0);
  EXPECT_NE(text.find(kLost), std::string::npos);
  EXPECT_LT(text.find(kLost), text.find("it goes on"));
  EXPECT_GT(text.find(kLost), kLogQueueBytes / 2) << "what fits is kept";
}

TEST(OwnLog, LastWordsOfAProcessThatDiesAreWritten) {
  const test::TemporaryHome home;
  const std::string path = home.path() + "/log";
  test::Child process = process_with_log(file_at(path), [](LogWriter&) {
    std::fputs("check failed\n", stderr);
    ::raise(SIGKILL);
  });
  EXPECT_EQ(process.wait_for_end(), 256 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return text_of(path) == "check failed\n"; })) << text_of(path);
}

TEST(OwnLog, GoesOnAfterTheWriterDied) {
  const test::TemporaryHome home;
  const std::string path = home.path() + "/log";
  Pipe until;
  const int both_ends = until.write_end.get();
  test::Child process = process_with_log(file_at(path), [&](LogWriter&) {
    ::close(both_ends);
    const std::thread more([] { ::pause(); });  // so it could not fork a writer itself
    for (int i = 0; is_open(until.read_end); ++i) log_info("line " + std::to_string(i));
    ::_exit(0);
  });
  pid_t first = -1;
  ASSERT_TRUE(eventually([&] { return (first = log_writer_of(process.pid())) > 0; }));
  const UniqueFd writer = open_pidfd(first);
  ::kill(first, SIGKILL);
  ASSERT_TRUE(await_end(writer));
  ASSERT_TRUE(eventually([&] { return log_writer_of(process.pid()) > 0; }));
  const size_t before = text_of(path).size();
  EXPECT_TRUE(eventually([&] { return text_of(path).size() > before; }));
  EXPECT_NE(text_of(path).find("the log writer process has ended"), std::string::npos);
  until.write_end.reset();
  EXPECT_EQ(process.wait_for_end(), 0);
}

}  // namespace
}  // namespace hpctl
