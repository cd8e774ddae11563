// SPDX-License-Identifier: Apache-2.0
// What a controller leaves behind about its job, for the one that takes over (script.h).
#pragma once

#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {

// The record of the job's generation, as the checkpoint directory has it.
GenerationRecord make_record(const FakeShell& shell, const Job& job);

// As the status file has them.
JobTotals make_totals(const FakeShell& shell, const Job& job);

}  // namespace hpctl::core
