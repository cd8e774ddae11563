// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/live_controller.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "common/base/check.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/process/spawn.h"
#include "common/rpc/controller_process.h"
#include "tests/support/processes.h"
#include "tests/support/promise.h"

namespace hpctl::test {
namespace {

std::string make_home() {
  std::string pattern = "/tmp/hpctl-fault-XXXXXX";
  HP_CHECK(::mkdtemp(pattern.data()) != nullptr);
  return pattern;
}

pid_t pid_in(const std::string& path) {
  const auto text = read_file(path, 64);
  return text.ok() ? static_cast<pid_t>(std::strtol(text->c_str(), nullptr, 10)) : 0;
}

}  // namespace

std::string program(const std::string& name) {
  const char* directory = std::getenv("HPCTL_BIN");
  HP_CHECK(directory != nullptr);
  return std::string(directory) + "/" + name;
}

// A name of each home's own: whoever is started while there are two belongs to both.
LiveController::LiveController()
    : paths_(make_home()), mark_("HPCTL_TEST_" + paths_.home().substr(paths_.home().size() - 6)) {
  ::signal(SIGPIPE, SIG_IGN);
  ::setenv(mark_.c_str(), "1", 1);
}

LiveController::~LiveController() {
  ::unsetenv(mark_.c_str());
  // Also a controller that an agent has just started, and that holds no lock yet.
  EXPECT_TRUE(end_marked_processes(mark_ + "=1")) << broken_promise("leftover");
  if (child_ > 0) wait_for_end();
  EXPECT_TRUE(remove_tree(paths_.socket_directory()).ok());
  EXPECT_TRUE(remove_tree(paths_.home()).ok());
}

void LiveController::start(const std::string& failpoint, std::vector<std::string> arguments) {
  std::array<int, 2> pipe_fds{};
  HP_CHECK(::pipe2(pipe_fds.data(), O_CLOEXEC) == 0);
  const UniqueFd reader(pipe_fds[0]);
  UniqueFd writer(pipe_fds[1]);
  SpawnRequest request{{program("hpcontroller"), "--home", paths_.home(), "--ready-fd", "3"},
                       paths_.controller_log(),
                       writer.get(),
                       {"HPCTL_METRICS"}};
  request.argv.insert(request.argv.end(), arguments.begin(), arguments.end());
  ::unsetenv("HPCTL_FAILPOINT");
  if (!failpoint.empty()) ::setenv("HPCTL_FAILPOINT", failpoint.c_str(), 1);
  const auto pid = spawn_in_new_session(request);
  ::unsetenv("HPCTL_FAILPOINT");
  HP_CHECK(pid.ok());
  child_ = *pid;
  writer.reset();
  char byte = 0;  // or the end of the pipe
  while (::read(reader.get(), &byte, 1) < 0 && errno == EINTR) {
  }
}

std::optional<int> LiveController::ended() {
  if (child_ <= 0) return 0;
  int status = 0;
  if (::waitpid(child_, &status, WNOHANG) != child_) return std::nullopt;
  child_ = -1;
  return status;
}

int LiveController::wait_for_end() {
  int status = 0;
  HP_CHECK(::waitpid(child_, &status, 0) == child_);
  child_ = -1;
  return status;
}

pid_t LiveController::present_pid() const {
  return lock_file(paths_.controller_lock()).ok() ? 0 : pid_in(paths_.controller_lock());
}

void LiveController::terminate() {
  const pid_t pid = present_pid();
  if (pid <= 0) return;
  const UniqueFd process = open_pidfd(pid);
  signal_pidfd(process, SIGTERM);
  HP_CHECK(await_end(process));
}

std::unique_ptr<v1::Controller::Stub> LiveController::stub() const {
  return v1::Controller::NewStub(connect_controller(paths_));
}

void set_deadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
}

JobSpec gated_job(const std::string& name, const std::string& journal, const std::string& gate) {
  JobSpec spec;
  spec.name = name;
  spec.nodes = 2;
  spec.workers_per_node = 2;
  spec.command = {"/bin/sh", "-c",
                  "echo $HPCTL_GENERATION $RANK $$ >> " + journal + "; read line < " + gate};
  return spec;
}

bool eventually(const std::function<bool()>& condition, int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 10);
  }
  return true;
}

std::string last_line(const std::string& path) {
  auto text = read_file(path);
  if (!text.ok()) return "";
  while (!text->empty() && text->back() == '\n') text->pop_back();
  const auto newline = text->rfind('\n');
  return newline == std::string::npos ? *text : text->substr(newline + 1);
}

}  // namespace hpctl::test
