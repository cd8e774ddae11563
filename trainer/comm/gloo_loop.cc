// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/gloo_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
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
  if (timer_.valid()) device_->unregisterDescriptor(timer_.get(), this);
  const std::lock_guard lock(mutex_);
}

void GlooLoop::post(std::function<void()> task) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_silent_) return;
    Clock::time_point due{};
    if (timer_.valid()) due = Clock::now() < delays_until_ ? Clock::now() + delay_ : Clock::now();
    is_first = tasks_.empty();
    tasks_.push_back({due, std::move(task)});
  }
  if (is_first) wake_up();
}

void GlooLoop::await_turn() {
  const auto turn = std::make_shared<std::latch>(1);
  {
    const std::lock_guard lock(mutex_);
    awaited_turns_.push_back(turn);
  }
  wake_up();
  turn->wait();
}

void GlooLoop::wake_up() {
  const uint64_t one = 1;
  // It fails only where the counter is full, and then the loop is awake.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

void GlooLoop::delay(std::chrono::milliseconds lasts, std::chrono::milliseconds by) {
  const std::lock_guard lock(mutex_);
  if (!timer_.valid()) {
    timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!timer_.valid()) throw std::system_error(errno, std::generic_category(), "timerfd");
    device_->registerDescriptor(timer_.get(), EPOLLIN, this);
  }
  delays_until_ = Clock::now() + lasts;
  delay_ = by;
}

void GlooLoop::fall_silent() {
  const std::lock_guard lock(mutex_);
  is_silent_ = true;
}

// Precondition: mutex_ is held.
void GlooLoop::set_timer(Clock::time_point due) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(due.time_since_epoch());
  const itimerspec at = {{}, {since.count() / 1'000'000'000, since.count() % 1'000'000'000}};
  HP_CHECK(::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr) == 0);
}

void GlooLoop::on_events() {
  uint64_t count = 0;
  [[maybe_unused]] ssize_t read = ::read(wake_.get(), &count, sizeof(count));
  std::deque<Task> tasks;
  std::vector<std::shared_ptr<std::latch>> awaited_turns;
  {
    const std::lock_guard lock(mutex_);
    awaited_turns.swap(awaited_turns_);
    if (!timer_.valid()) {
      tasks.swap(tasks_);
    } else {
      read = ::read(timer_.get(), &count, sizeof(count));
      const Clock::time_point now = Clock::now();
      while (!tasks_.empty() && tasks_.front().due <= now) {
        tasks.push_back(std::move(tasks_.front()));
        tasks_.pop_front();
      }
      if (!tasks_.empty()) set_timer(tasks_.front().due);
    }
  }
  for (const Task& task : tasks) task.run();
  for (const auto& turn : awaited_turns) turn->count_down();
}

}  // namespace hpctl
