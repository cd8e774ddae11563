// SPDX-License-Identifier: Apache-2.0
// EventLoop: epoll with a callback per descriptor. One thread; callbacks may add and remove any
// descriptor, their own included. Descriptors must be non-blocking or read only when ready: after a
// removal and reuse of a number within one round, a callback can run once without cause.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "common/base/fd.h"

namespace hpctl {

class EventLoop {
 public:
  using Ready = std::function<void(uint32_t epoll_events)>;

  EventLoop();
  void add(int fd, uint32_t epoll_events, Ready ready);
  void change(int fd, uint32_t epoll_events);
  // Must be called before the descriptor is closed.
  void remove(int fd);
  // Waits for at most timeout_ms (-1 = for ever) and runs the callbacks of what is ready.
  void run_once(int64_t timeout_ms);

 private:
  UniqueFd epoll_;
  std::map<int, std::shared_ptr<Ready>> callbacks_;
};

}  // namespace hpctl
