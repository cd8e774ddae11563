// SPDX-License-Identifier: Apache-2.0
// Ctrl-C while a verb waits: it stops waiting, and tells what it knows.
#pragma once

#include <csignal>

namespace hpctl {

// While it lives, SIGINT and SIGTERM set a flag instead of ending the program. One at a time.
class InterruptFlag {
 public:
  InterruptFlag();
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;
  static bool raised();

 private:
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
};

}  // namespace hpctl
