// SPDX-License-Identifier: Apache-2.0
// reference/train.py as a process that trains for all cases of a program: importing torch costs
// more than most of what they ask for.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "common/base/check.h"
#include "common/base/fd.h"

namespace hpctl::testing {

class ReferenceProcess {
 public:
  // Begun by the first who asks; ends with the program.
  static ReferenceProcess& of_this_program() {
    static ReferenceProcess process;
    return process;
  }
  ReferenceProcess(const ReferenceProcess&) = delete;
  ReferenceProcess& operator=(const ReferenceProcess&) = delete;

  // What `directory` holds, in float16, float32 or float64: 0 when that is done, else the code that
  // the process ended with, now or before, or -N after signal N. 77 and 127: there is no PyTorch.
  int train(const std::string& directory, const std::string& type) {
    if (pid_ < 0) return code_;
    const std::string line = directory + " " + type + "\n";
    // A process that has ended takes nothing, and answers with the end of the file.
    ::send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL);
    for (char byte = 0; ::read(socket_.get(), &byte, 1) == 1;) {
      if (byte == '\n') return 0;
    }
    await_end();
    return code_;
  }

 private:
  ReferenceProcess() {
    std::array<int, 2> ends{};
    HP_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    socket_ = UniqueFd(ends[0]);
    const UniqueFd other(ends[1]);
    pid_ = ::fork();
    HP_CHECK(pid_ >= 0);
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(other.get(), STDIN_FILENO);
    ::dup2(other.get(), STDOUT_FILENO);
    // By path: a python3 of the user's own would not see the package.
    constexpr const char* kPython = "/usr/bin/python3";
    ::execl(kPython, kPython, HPCTL_SOURCE_DIR "/tests/unit/trainer/reference/train.py",
            static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ~ReferenceProcess() {
    socket_.reset();
    if (pid_ > 0) await_end();
  }

  void await_end() {
    int status = 0;
    HP_CHECK(::waitpid(pid_, &status, 0) == pid_);
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    pid_ = -1;
  }

  UniqueFd socket_;
  pid_t pid_ = -1;
  int code_ = 0;
};

}  // namespace hpctl::testing
