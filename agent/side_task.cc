// SPDX-License-Identifier: Apache-2.0
#include "agent/side_task.h"

#include <unistd.h>

#include <cstdint>
#include <utility>

#include "common/base/check.h"

namespace hpctl::agent {

SideTask::~SideTask() {
  if (thread_.joinable()) thread_.join();
}

void SideTask::start(std::function<void()> task) {
  HP_CHECK(!is_busy());
  has_ended_ = false;
  thread_ = std::thread([this, task = std::move(task)] {
    task();
    has_ended_ = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_fd_, &one, sizeof(one));
  });
}

bool SideTask::take_end() {
  if (!thread_.joinable() || !has_ended_) return false;
  thread_.join();
  return true;
}

}  // namespace hpctl::agent
