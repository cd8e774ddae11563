// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/gloo_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "common/base/check.h"

namespace hpctl {

GlooLoop::GlooLoop(const std::shared_ptr<gloo::transport::Device>& device)
    : device_(std::dynamic_pointer_cast<gloo::transport::tcp::Device>(device)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  HP_CHECK(device_ != nullptr);
  if (wake_.get() < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  device_->registerDescriptor(wake_.get(), EPOLLIN, this);
}

// Gloo returns after a turn of its loop, of which it hears without a lock: by ours what the loop's
// thread did here comes before what follows.
GlooLoop::~GlooLoop() {
  device_->unregisterDescriptor(wake_.get(), this);
  const std::lock_guard lock(mutex_);
}

void GlooLoop::post(std::function<void()> task) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (!is_first) return;
  const uint64_t one = 1;
  // It fails only where the counter is full, and then the loop is awake.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

void GlooLoop::on_events() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t read = ::read(wake_.get(), &count, sizeof(count));
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

}  // namespace hpctl
