// SPDX-License-Identifier: Apache-2.0
#include "agent/shim/task_stacks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "common/job/stack_files.h"

namespace hpctl::shim {

Result<TaskStacks> TaskStacks::start(const std::string& program, const std::string& directory,
                                     uint64_t generation, int32_t rank, pid_t pid,
                                     int64_t deadline_ms) {
  HP_TRY_ASSIGN(HeardProcess heard,
                spawn_heard({program, directory, std::to_string(generation),
                             std::to_string(rank) + ":" + std::to_string(pid)}));
  const std::string path = directory + "/" + stack_file(generation, std::to_string(rank));
  return TaskStacks(std::move(heard.process), std::move(heard.output), path, deadline_ms);
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
    deadline_ms_ += stacks_limit_or(kRecordersLimitMs);
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
