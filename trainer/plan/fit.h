// SPDX-License-Identifier: Apache-2.0
// Does a plan fit into a machine's memory? A plan that does not is refused before it is tried: the
// kernel would end the worker without a message, and until then take memory from other programs
// there.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "trainer/plan/memory_plan.h"

namespace hpctl {

// The memory of this machine, swap included.
double machine_memory_bytes();

// "most of it is moments, 4.0 GiB of each; use a smaller ...": what needs most, and what to change.
std::string describe_largest(const MemoryPlan& plan);

// `workers` of them on a machine with `memory_bytes`. kResourceExhausted: what needs most, and what
// to change.
Outcome check_fit(const MemoryPlan& plan, int64_t workers, double memory_bytes);

// Likewise of MemoryPlan::host: what workers on GPUs have in the host's memory.
// kFailedPrecondition: the copies of the state are not kept.
Outcome check_host_fit(const MemoryPlan& plan, int64_t workers, double memory_bytes);

}  // namespace hpctl
