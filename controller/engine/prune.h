// SPDX-License-Identifier: Apache-2.0
// PruneCheckpoints: deletes older checkpoints after the newest one has been read again. File I/O
// that may block: in the lane of the directory, never on the owner thread.
#pragma once

#include <functional>
#include <optional>

#include "controller/core/core.h"

namespace hpctl {

// CheckpointsPruned, or ActionFailed if storage could not be read or written. Nothing if goes_on()
// has become false: the order is withdrawn then. Nothing is deleted unless the newest checkpoint is
// sound (checkpoint.verify_before_delete), or a node has found it sound.
std::optional<core::EventBody> prune_checkpoints(ActionId id, const core::PruneCheckpoints& action,
                                                 const JobSpec& spec,
                                                 const std::function<bool()>& goes_on);

}  // namespace hpctl
