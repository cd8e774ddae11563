// SPDX-License-Identifier: Apache-2.0
// A job's controller claims the checkpoint directory before it looks for a checkpoint there, and
// looks whether it still owns the directory before it records a generation.
#pragma once

#include <optional>
#include <string>

#include "controller/core/core.h"
#include "controller/leadership/controller_mode.h"

namespace hpctl {

struct ClaimOutcome {
  std::optional<core::ActionFailed> failure;  // the directory is not this job's, or cannot be read
  std::string note;                           // for the history: whom the job follows; "" = nobody
};

// A job that has recorded a generation there must own the directory already: another job may have
// taken it. Not on the owner thread; may block on files and on Slurm.
ClaimOutcome claim_for(ActionId action, const core::Job& job, const ControllerMode& mode);

// The same for the mirror, which has a separate owner. No failure is permanent: the job trains
// without its mirror.
ClaimOutcome claim_mirror(ActionId action, const core::Job& job, const ControllerMode& mode);

}  // namespace hpctl
