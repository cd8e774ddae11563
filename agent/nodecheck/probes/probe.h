// SPDX-License-Identifier: Apache-2.0
// The frame of the probes: each answers its questions with findings
// (agent/nodecheck/core/health.h).
#pragma once

#include <string>
#include <vector>

#include "agent/nodecheck/core/health.h"

namespace hpctl::agent {

enum class CheckDepth {
  kLight,  // within a second: no transfers, nothing is watched
  kFull,
  kDeep,  // minutes of full load besides
};

struct ProbeContext {
  std::string instance_type;  // "" = unknown
  HealthTable table;
  CheckDepth depth = CheckDepth::kFull;
  std::vector<std::string> directories;  // to be written to
};

// For this machine, or for the tree under $HPCTL_SYSROOT.
int count_efa_devices();

// Each asks the machine it runs on, or what is under $HPCTL_SYSROOT, and may take seconds.
std::vector<Finding> probe_gpu(const ProbeContext& context);   // NVML, kernel log
std::vector<Finding> probe_efa(const ProbeContext& context);   // sysfs, libfabric's efa provider
std::vector<Finding> probe_net(const ProbeContext& context);   // interfaces, a transfer
std::vector<Finding> probe_host(const ProbeContext& context);  // processors, memory, clock
std::vector<Finding> probe_fs(const ProbeContext& context);    // network file systems

}  // namespace hpctl::agent
