// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/stop_request.h"

#include <atomic>
#include <csignal>
#include <cstdlib>

namespace hpctl {
namespace {

std::atomic<bool> g_requested{false};  // written by a signal's handler and by threads
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

void take_stop_requests() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_requested = true; };
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
}

void end_on_stop_requests() {
  std::signal(SIGTERM, SIG_DFL);
  if (is_stop_requested()) end_as_requested();
}

void request_stop() { g_requested = true; }

bool is_stop_requested() { return g_requested; }

void end_as_requested() {
  std::signal(SIGTERM, SIG_DFL);
  std::raise(SIGTERM);
  std::abort();  // SIGTERM is blocked
}

}  // namespace hpctl
