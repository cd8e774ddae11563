// SPDX-License-Identifier: Apache-2.0
#include "agent/shim/task_stacks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "common/base/stack_files.h"

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
  const std::string path = directory + "/" + stack_file(generation, std::to_string(rank));
  return TaskStacks(std::move(process), std::move(read_end), path, now_ms + kStacksLimitMs);
}

TaskStacks::TaskStacks(SpawnedProcess process, UniqueFd output, std::string path,
                       int64_t deadline_ms)
    : process_(std::move(process)),
      output_(std::move(output)),
      path_(std::move(path)),
      deadline_ms_(deadline_ms) {}

void TaskStacks::read_output() {
  std::array<char, 1024> buffer{};  // its two or three lines
  const ssize_t n = ::read(output_.get(), buffer.data(), buffer.size());
  said_.append(buffer.data(), n > 0 ? static_cast<size_t>(n) : 0);
  if (!asks_recorder_ && said_.starts_with(kRecordersAreAsked)) {
    asks_recorder_ = true;
    said_.erase(0, kRecordersAreAsked.size());
    deadline_ms_ += kRecordersLimitMs;
  }
}

bool TaskStacks::is_over(int64_t now_ms) {
  if (now_ms >= deadline_ms_) read_output();
  return now_ms >= deadline_ms_;
}

std::string TaskStacks::finish() {
  ::kill(process_.pid, SIGKILL);
  ::waitpid(process_.pid, nullptr, 0);
  read_output();
  const size_t end = said_.find('\n');
  return end == std::string::npos ? "" : path_ + ": " + said_.substr(0, end);
}

}  // namespace hpctl::shim
