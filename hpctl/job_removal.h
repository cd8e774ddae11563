// SPDX-License-Identifier: Apache-2.0
// Removes a job that has ended: its record, its logs and its directory (`hpctl rm`, `hpctl prune`).
// Its checkpoints stay unless they are asked for, and those of a directory outside of the job's
// stay always.
//
// The controller of the home forgets a local job first, so it writes no file of it again. The files
// by which hpctl finds the job go last: a removal that was interrupted can be repeated.
#pragma once

#include <string>

#include "common/base/result.h"
#include "hpctl/open_job.h"

namespace hpctl {

enum class CheckpointsOf { kKept, kRemoved };

struct Removal {
  std::string kept;  // directory whose checkpoints stay; "" = there are none
};

// The job of the first argument of a verb, also where only the rest of an interrupted removal is
// left.
Result<OpenJob> open_removable(const std::string& word);

// kFailedPrecondition: the job has not ended, or it is of another home, or its checkpoints are to
// be removed and belong to another job. kUnavailable: the home or its controller does not answer.
// Nothing was removed then.
Result<Removal> remove_job(const OpenJob& job, CheckpointsOf checkpoints);

}  // namespace hpctl
