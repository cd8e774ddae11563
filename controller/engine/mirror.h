// SPDX-License-Identifier: Apache-2.0
// Actions on checkpoint.mirror.dir. File I/O that may block: in the mirror's own lane, never on the
// owner thread. So a mirror that hangs delays nothing but itself.
#pragma once

#include <functional>
#include <optional>

#include "controller/core/core.h"

namespace hpctl {

// CheckpointMirrored, or ActionFailed if one of the two places could not be read or written.
// Nothing if goes_on() has become false: the order is withdrawn then.
std::optional<core::EventBody> mirror_checkpoint(ActionId id, const core::MirrorCheckpoint& action,
                                                 const JobSpec& spec,
                                                 const std::function<bool()>& goes_on);

// CheckpointChosen with the path of the newest valid checkpoint in the mirror, or ActionFailed. The
// lineage comes from checkpoint.dir, or from the mirror if checkpoint.dir cannot be read.
core::EventBody find_in_mirror(ActionId id, const core::FindCheckpoint& action,
                               const JobSpec& spec);

// Gives checkpoint.dir the records back that only the mirror has: a generation that was recorded
// while checkpoint.dir could not be reached, or all if it was emptied. kStorage: nothing proves
// that the directory is the one that was mirrored.
Outcome restore_lineage(const CheckpointSpec& checkpoint, Generation newest);

}  // namespace hpctl
