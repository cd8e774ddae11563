// SPDX-License-Identifier: Apache-2.0
// Functions that run on the thread of a Gloo device's event loop.
//
// That thread takes a pair's lock only if it is free, and otherwise asks epoll again at once. So
// while another thread sends or receives over the pair, where a write over the loopback takes as
// long as the peer's kernel needs to receive it, the loop's thread spins: with more ranks than
// processors a third of the time went there (decision 1403). Code on the loop's own thread has no
// such contention.
//
// `hpctl chaos` injects faults of the network here too, between the collectives and the sockets:
// functions may be run late, or not at all.
#pragma once

#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <deque>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <vector>

#include "common/base/fd.h"
#include "trainer/compat/gloo_compat.h"

namespace hpctl {

class GlooLoop final : private compat::GlooHandler {
 public:
  // Throws as Gloo does. The device is one of Gloo's TCP transport.
  explicit GlooLoop(const std::shared_ptr<gloo::transport::Device>& device);
  // Drops pending functions. Returns when none runs.
  ~GlooLoop() override;
  GlooLoop(const GlooLoop&) = delete;
  GlooLoop& operator=(const GlooLoop&) = delete;

  // In the order of the calls; must not throw. Any thread.
  void post(std::function<void()> task);

  // Returns when the loop's thread has ended what it was doing: that comes before what follows.
  // Also of a loop that is late or silent. Any thread but the loop's.
  void await_turn();

  // Functions posted within `lasts` from now on run `by` later; later ones do not overtake them.
  // Throws std::system_error.
  void delay(std::chrono::milliseconds lasts, std::chrono::milliseconds by);
  // Functions posted from now on never run.
  void fall_silent();

 private:
  using Clock = std::chrono::steady_clock;
  struct Task {
    Clock::time_point due;
    std::function<void()> run;
  };

  void on_events() override;
  void wake_up();
  void set_timer(Clock::time_point due);

  std::shared_ptr<gloo::transport::tcp::Device> device_;
  UniqueFd wake_;     // an eventfd
  UniqueFd timer_;    // a timerfd; of delay()
  std::mutex mutex_;  // guards what follows
  std::deque<Task> tasks_;
  std::vector<std::shared_ptr<std::latch>> awaited_turns_;
  bool is_silent_ = false;
  Clock::time_point delays_until_{};
  std::chrono::milliseconds delay_{};
};

}  // namespace hpctl
