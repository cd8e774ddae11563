// SPDX-License-Identifier: Apache-2.0
#include "common/process/processors.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace hpctl {

int allowed_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  // The set has no room for the processors of this machine.
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace hpctl
