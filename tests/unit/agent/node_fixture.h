// SPDX-License-Identifier: Apache-2.0
// What tests of holder and agent share: a home of their own, processes that are ended whatever
// happens, and waiting for a condition with a deadline.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/job/paths.h"
#include "tests/support/processes.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::test {

class TemporaryHome : public TemporaryDirectory {
 public:
  HomePaths paths() const { return HomePaths(path()); }
};

// Programs that the tests start; both directories come from the build.
inline std::string test_program(const std::string& name) {
  return std::string(HPCTL_TEST_PROGRAMS) + "/" + name;
}
inline std::string product_program(const std::string& name) {
  const char* bin = std::getenv("HPCTL_BIN");
  return (bin != nullptr ? std::string(bin) : std::string(HPCTL_TEST_PROGRAMS) + "/../bin") + "/" +
         name;
}

inline bool eventually(const std::function<bool()>& condition, int timeout_ms = 60'000) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

inline std::string text_of(const std::string& path) {
  const auto text = read_file(path);
  return text.ok() ? *text : "";
}

// The number after `key ` on a line of its own; -1 when absent.
inline long number_after(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key + " ")) return std::atol(line.c_str() + key.size() + 1);
  }
  return -1;
}

// A child process that is killed and reaped at the end of the test at the latest.
class Child {
 public:
  Child() = default;
  explicit Child(const std::function<int()>& body) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a crashed test leaves nothing behind either
      ::_exit(body());
    }
  }
  Child(Child&& other) noexcept : pid_(other.pid_), status_(other.status_) { other.pid_ = -1; }
  Child& operator=(Child&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(status_, other.status_);
    return *this;
  }
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  pid_t pid() const { return pid_; }
  // Exit code, 256 + signal, or -1 when it did not end in time.
  int wait_for_end(int timeout_ms = 60'000) {
    int status = 0;
    if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, timeout_ms)) {
      return -1;
    }
    pid_ = -1;
    return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
};

}  // namespace hpctl::test
