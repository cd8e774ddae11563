// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/batch_ramp.h"

#include <algorithm>

namespace hpctl {

uint64_t global_batch(const BatchSpec& batch, uint64_t cursor) {
  for (const RampPoint& point : batch.ramp) {
    if (cursor < static_cast<uint64_t>(point.samples)) return static_cast<uint64_t>(point.global);
  }
  return static_cast<uint64_t>(batch.global);
}

uint64_t samples_after(const BatchSpec& batch, uint64_t steps) {
  uint64_t cursor = 0;
  for (const RampPoint& point : batch.ramp) {
    const auto until = static_cast<uint64_t>(point.samples);
    const auto each = static_cast<uint64_t>(point.global);
    if (cursor >= until) continue;
    const uint64_t taken = std::min(steps, (until - cursor + each - 1) / each);
    cursor += taken * each;
    steps -= taken;
  }
  return cursor + steps * static_cast<uint64_t>(batch.global);
}

}  // namespace hpctl
