// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/stop_request.h"

#include <csignal>
#include <cstdlib>

namespace hpctl {
namespace {

volatile std::sig_atomic_t g_requested = 0;

}  // namespace

void take_stop_requests() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_requested = 1; };
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
}

bool is_stop_requested() { return g_requested != 0; }

void end_as_requested() {
  std::signal(SIGTERM, SIG_DFL);
  std::raise(SIGTERM);
  std::abort();  // SIGTERM is blocked
}

}  // namespace hpctl
