// SPDX-License-Identifier: Apache-2.0
// The targets of a run that must go back, within one generation.
//
// A generation's checkpoints count from its start step on (docs/formats.md, "Validity is lineage"),
// so it never goes back before the state it started from. If that state came from memory, it no
// longer exists. Its own checkpoints after the target belong to an undone history. Once every rank
// has read the state to resume from, they get other names, and they are deleted after a new
// checkpoint is durable (undo_checkpoints() and delete_older_checkpoints() in
// trainer/checkpoint/commit.h). A crash in between leaves a history that leads to the same decision
// again.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/worker/workload.h"

namespace hpctl {

// Path of this generation's newest checkpoint that is at most at step `target`. Without one, the
// nearer to the target of its oldest checkpoint and the checkpoint it started from: with few kept,
// the latter may be most of a run away. "" = the seed, only if it started there and no checkpoint
// is left. If nothing is left, kFailedPrecondition, or kDataLoss if the state came from memory: a
// generation that starts from a checkpoint can go back. Rank 0 calls it, and all ranks do the same.
Result<std::string> rollback_source(const Workload& workload, uint64_t target);

}  // namespace hpctl
