// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/stop_request.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>

namespace hpctl {
namespace {

using Clock = std::chrono::steady_clock;

// When the first request came; 0 = none has. Written by a signal's handler and by threads.
std::atomic<int64_t> g_requested_ns{0};
static_assert(std::atomic<int64_t>::is_always_lock_free);

int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

}  // namespace

void take_stop_requests() {
  struct sigaction action {};
  action.sa_handler = [](int) { request_stop(); };
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
}

void end_on_stop_requests() {
  std::signal(SIGTERM, SIG_DFL);
  if (is_stop_requested()) end_as_requested();
}

void request_stop() {
  int64_t none = 0;
  g_requested_ns.compare_exchange_strong(none, now_ns());
}

bool is_stop_requested() { return g_requested_ns != 0; }

std::optional<double> seconds_since_stop() {
  const int64_t requested_ns = g_requested_ns;
  if (requested_ns == 0) return std::nullopt;
  return static_cast<double>(now_ns() - requested_ns) * 1e-9;
}

void end_as_requested() {
  std::signal(SIGTERM, SIG_DFL);
  std::raise(SIGTERM);
  std::abort();  // SIGTERM is blocked
}

}  // namespace hpctl
