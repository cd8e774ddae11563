// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/fault_order.h"

#include <array>
#include <atomic>
#include <limits>
#include <string>

#include "common/base/log.h"

namespace hpctl {
namespace {

// The generation that each is to happen in; 0 = none.
std::array<std::atomic<uint64_t>, words_of(InjectedFault{}).size()> g_ordered{};

std::atomic<uint64_t>& order_of(InjectedFault fault) {
  return g_ordered[static_cast<size_t>(fault)];
}

// A repeated step is not meant as well.
bool take_order(InjectedFault fault, uint64_t generation) {
  return order_of(fault).compare_exchange_strong(generation, 0);
}

void hang_if_ordered(uint64_t generation) {
  const std::atomic<uint64_t>& hanging = order_of(InjectedFault::kHangWorker);
  if (hanging != generation) return;
  log_warning("a fault on purpose: this rank hangs");
  while (hanging == generation) {
  }
}

}  // namespace

void order_fault(InjectedFault fault, uint64_t generation) { order_of(fault) = generation; }

Outcome suffer_ordered_fault(uint64_t generation) {
  hang_if_ordered(generation);
  if (!take_order(InjectedFault::kExitWorker, generation)) return Ok{};
  return Error{ErrorCode::kInternal, "a fault on purpose: this rank fails inside a step"};
}

double ordered_gradient_factor(uint64_t generation) {
  if (!take_order(InjectedFault::kNanGradient, generation)) return 1;
  log_warning("a fault on purpose: this rank's gradients of a step are NaN");
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace hpctl
