// SPDX-License-Identifier: Apache-2.0
// The frame of the probes: each answers its questions with findings (agent/core/health.h).
#pragma once

#include <string>
#include <vector>

#include "agent/core/health.h"

namespace hpctl::agent {

struct ProbeContext {
  std::string instance_type;  // "" = unknown
  HealthTable table;
};

// Each asks the machine it runs on, or what is under $HPCTL_SYSROOT, and may take seconds.
std::vector<Finding> probe_gpu(const ProbeContext& context);  // NVML, kernel log
std::vector<Finding> probe_efa(const ProbeContext& context);  // sysfs, libfabric's efa provider
std::vector<Finding> probe_net(const ProbeContext& context);  // interfaces, a transfer

}  // namespace hpctl::agent
