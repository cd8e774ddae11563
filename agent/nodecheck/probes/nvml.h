// SPDX-License-Identifier: Apache-2.0
// The little of NVML that the probes need, through our own declarations of its functions.
#pragma once

#include <string>
#include <vector>

#include "agent/nodecheck/core/health.h"
#include "common/base/result.h"

namespace hpctl::agent {

struct GpuInventory {
  std::string driver;  // version; "" = not told
  std::vector<GpuHealth> gpus;
};

// kNotFound: no NVIDIA driver library here. kUnavailable: it is here and does not work.
// `watches`: a clock that is held down is looked at twice, and counts where it stays so.
Result<GpuInventory> read_gpus(bool watches);

}  // namespace hpctl::agent
