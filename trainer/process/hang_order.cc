// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/hang_order.h"

#include <atomic>

#include "common/base/log.h"

namespace hpctl {
namespace {

std::atomic<uint64_t> g_hanging{0};  // generation

}  // namespace

void order_hang(uint64_t generation) { g_hanging = generation; }

void hang_if_ordered(uint64_t generation) {
  if (g_hanging != generation) return;
  log_warning("a fault on purpose: this rank hangs");
  while (g_hanging == generation) {
  }
}

}  // namespace hpctl
