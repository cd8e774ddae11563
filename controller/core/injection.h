// SPDX-License-Identifier: Apache-2.0
// Injected faults that a job cannot have at all, whatever its state.
#pragma once

#include <string>

#include "common/worker/injected_fault.h"
#include "controller/core/types.h"

namespace hpctl::core {

// Why it cannot be injected into this job, by its spec and its nodes; "" = it can, at some time.
std::string find_lasting_conflict(const Job& job, InjectedFault fault);

}  // namespace hpctl::core
