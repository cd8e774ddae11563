// SPDX-License-Identifier: Apache-2.0
// Processors and memory at full load, with results that are known: what a light check cannot see.
#pragma once

#include <chrono>
#include <cstdint>

#include "agent/nodecheck/core/host_health.h"

namespace hpctl::agent {

struct BurnLimits {
  std::chrono::milliseconds compute{10'000};
  std::chrono::milliseconds memory{20'000};
  uint64_t memory_bytes = UINT64_MAX;  // besides half of what is available
};

// On all processors: each computes the same over and over, then memory is written and read back
// twice, as far as the time allows.
BurnResult burn(const BurnLimits& limits = {});

}  // namespace hpctl::agent
