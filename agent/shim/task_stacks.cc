// SPDX-License-Identifier: Apache-2.0
#include "agent/shim/task_stacks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "agent/core/stack_files.h"

namespace hpctl::shim {

Result<TaskStacks> TaskStacks::start(const std::string& program, const std::string& directory,
                                     uint64_t generation, int32_t rank, pid_t pid, int64_t now_ms) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot create a pipe");
  UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  // What it left running must not hold the shim up.
  if (::fcntl(read_end.get(), F_SETFL, O_NONBLOCK) != 0) return errno_error("cannot set up a pipe");
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  SpawnPlan plan;
  plan.program = program;
  plan.argv = {program, directory, std::to_string(generation),
               std::to_string(rank) + ":" + std::to_string(pid)};
  plan.env = environment_with({});
  plan.descriptors = {null.get(), write_end.get(), STDERR_FILENO};
  HP_TRY_ASSIGN(SpawnedProcess process, spawn_process(plan));
  const std::string path = directory + "/" + agent::stack_file(generation, std::to_string(rank));
  return TaskStacks(std::move(process), std::move(read_end), path, now_ms + kStacksLimitMs);
}

TaskStacks::TaskStacks(SpawnedProcess process, UniqueFd output, std::string path,
                       int64_t deadline_ms)
    : process_(std::move(process)),
      output_(std::move(output)),
      path_(std::move(path)),
      deadline_ms_(deadline_ms) {}

std::string TaskStacks::finish() {
  ::kill(process_.pid, SIGKILL);
  ::waitpid(process_.pid, nullptr, 0);
  std::array<char, 1024> buffer{};  // its one line
  const ssize_t n = ::read(output_.get(), buffer.data(), buffer.size());
  const std::string said(buffer.data(), n > 0 ? static_cast<size_t>(n) : 0);
  const size_t end = said.find('\n');
  return end == std::string::npos ? "" : path_ + ": " + said.substr(0, end);
}

}  // namespace hpctl::shim
