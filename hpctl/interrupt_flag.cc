// SPDX-License-Identifier: Apache-2.0
#include "hpctl/interrupt_flag.h"

namespace hpctl {
namespace {

volatile std::sig_atomic_t interrupted = 0;

}  // namespace

InterruptFlag::InterruptFlag() {
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &old_int_);
  ::sigaction(SIGTERM, &action, &old_term_);
}

InterruptFlag::~InterruptFlag() {
  ::sigaction(SIGINT, &old_int_, nullptr);
  ::sigaction(SIGTERM, &old_term_, nullptr);
}

bool InterruptFlag::raised() { return interrupted != 0; }

}  // namespace hpctl
