// SPDX-License-Identifier: Apache-2.0
// Where a run that must go back may go back to, within one generation.
//
// A generation's checkpoints count from its start step on (docs/formats.md, "Validity is lineage"),
// so it never goes back behind the state it started from. Its own checkpoints behind the target
// belong to a history that is undone and are deleted before training goes on; a crash in between
// leaves a history that comes to the same decision again.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/base/workload.h"

namespace hpctl {

// The newest state that is at most at step `target`: path of a checkpoint of this generation, or
// what the generation started from ("" = the seed); if that was deleted, the generation's oldest
// checkpoint. kFailedPrecondition when nothing is left. Rank 0 asks, all do the same.
Result<std::string> rollback_source(const Workload& workload, uint64_t target);

}  // namespace hpctl
