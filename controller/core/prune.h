// SPDX-License-Identifier: Apache-2.0
// Deletions of older checkpoints, after a newer one was verified.
#pragma once

#include <cstdint>
#include <string>

#include "controller/core/transition.h"

namespace hpctl::core {

// The job trains, a newer checkpoint was committed or room is needed, and no order is open.
bool can_prune(Transition& t, const Job& job);
// The next order of the deletion: to name the checkpoint to verify, to verify it, or to delete.
void order_prune(Transition& t, Job& job);
// The job has finished while a node was to verify: its nodes end, and the controller does it.
void finish_prune(Transition& t, Job& job);
// The order could not be carried out; the next commit gives another one.
void prune_failed(Transition& t, Job& job, const std::string& cause);

}  // namespace hpctl::core
