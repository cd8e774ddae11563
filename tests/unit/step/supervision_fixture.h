// SPDX-License-Identifier: Apache-2.0
// The shim's supervision in a process of its own, whose parent stands in for slurmstepd and for the
// step's controller.
#pragma once

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "agent/shim/supervision.h"
#include "common/worker/step_protocol.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::shim {

inline constexpr int kPatienceMs = 60'000;

inline bool is_ready(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, kPatienceMs) == 1;
}

class SupervisionFixture : public testing::Test {
 protected:
  void TearDown() override { end_shim(); }
  void end_shim() {
    if (shim_ <= 0) return;
    ::kill(shim_, SIGKILL);
    ::waitpid(shim_, nullptr, 0);
    shim_ = -1;
  }

  // The task's program is `sh -c SCRIPT`.
  void start(const char* script, int64_t own_signal_ms) {
    settings_.own_signal_ms = own_signal_ms;
    start_program({"/bin/sh", "-c", script});
  }
  // Slurm's signals go to every process of the step.
  void start_program(const std::vector<std::string>& command) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    shim_ = ::fork();
    ASSERT_GE(shim_, 0);
    if (shim_ == 0) {
      ::close(ends[0]);
      if (!lowers_priority_) ::prctl(PR_CAPBSET_DROP, CAP_SYS_NICE);
      for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
        if (output_.valid()) ::dup2(output_.get(), stream);
      }
      supervise(command, ends[1]);
    }
    ::close(ends[1]);
    controller_.emplace(UniqueFd(ends[0]));
    step::Start order;
    order.generation = 1;
    order.run_id = "supervision-test";
    say(order);
  }
  void say(const step::ToShim& order) { ASSERT_TRUE(controller_->send(step::encode(order)).ok()); }
  // What the shim says next; nullopt = nothing any more.
  std::optional<step::ToController> next() {
    for (;;) {
      auto packet = controller_->receive();
      if (!packet.ok()) return std::nullopt;
      if (packet->has_value()) return step::decode_to_controller(**packet).value();
      if (!is_ready(controller_->fd())) return std::nullopt;
    }
  }

  int status_of_shim() {
    int status = 0;
    EXPECT_EQ(::waitpid(shim_, &status, 0), shim_);
    shim_ = -1;
    return status;
  }

  TemporaryDirectory directory_;
  TaskSettings settings_;
  // Of a Python that stands by, while it imports: on a busy machine it then hardly gets on.
  bool lowers_priority_ = true;
  UniqueFd output_;  // the task's standard output and error; invalid = the test's
  pid_t shim_ = -1;
  std::optional<FrameStream> controller_;

 private:
  [[noreturn]] void supervise(const std::vector<std::string>& command, int controller) const {
    ProgramPlan plan;
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, &plan.signals.mask);
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &standard, &plan.signals.child);
    plan.program = command.front();
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    plan.argv = argv.data();
    TaskSettings settings = settings_;
    settings.tasks = settings.local_tasks = 1;
    settings.signals_all = 1;
    Supervision(settings, plan, FrameStream(UniqueFd(controller)),
                UniqueFd(::signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK)))
        .run();
  }
};

}  // namespace hpctl::shim
