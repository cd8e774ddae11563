// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/fault_injector.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hpctl {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

Clock::duration slept(uint64_t generation, milliseconds computed) {
  const auto began = Clock::now();
  inject_ordered_slowness(generation, computed);
  return Clock::now() - began;
}

// Of longer passes, which no busy machine takes for nothing.
TEST(FaultOrder, ASlowRanksPassesTakeThreeTimesAsLongForAWhile) {
  constexpr milliseconds kComputed{500};
  EXPECT_LT(slept(3, kComputed), kComputed) << "nobody has ordered it";
  order_fault(InjectedFault::kSlowWorker, 4);
  EXPECT_LT(slept(3, kComputed), kComputed) << "of another generation";
  EXPECT_GE(slept(4, kComputed), 2 * kComputed);
  EXPECT_GE(slept(4, kComputed), 2 * kComputed) << "in the next step too";
  while (slept(4, milliseconds(1)) >= milliseconds(2)) {
  }
  EXPECT_LT(slept(4, kComputed), kComputed) << "it is over";
}

}  // namespace
}  // namespace hpctl
