// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>

#include "common/base/check.h"

namespace hpctl {

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) { HP_CHECK(epoll_.valid()); }

void EventLoop::add(int fd, uint32_t epoll_events, Ready ready) {
  epoll_event event{};
  event.events = epoll_events;
  event.data.fd = fd;
  HP_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
  callbacks_[fd] = std::make_shared<Ready>(std::move(ready));
}

void EventLoop::change(int fd, uint32_t epoll_events) {
  epoll_event event{};
  event.events = epoll_events;
  event.data.fd = fd;
  HP_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0);
}

void EventLoop::remove(int fd) {
  HP_CHECK(callbacks_.erase(fd) == 1);
  HP_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) == 0);
}

void EventLoop::run_once(int64_t timeout_ms) {
  std::array<epoll_event, 64> events{};
  const int timeout = static_cast<int>(std::clamp<int64_t>(timeout_ms, -1, 3'600'000));
  const int n = ::epoll_wait(epoll_.get(), events.data(), events.size(), timeout);
  for (int i = 0; i < n; ++i) {
    const auto found = callbacks_.find(events[i].data.fd);
    if (found == callbacks_.end()) continue;  // removed by an earlier callback of this round
    const std::shared_ptr<Ready> ready = found->second;
    (*ready)(events[i].events);
  }
}

}  // namespace hpctl
