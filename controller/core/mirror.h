// SPDX-License-Identifier: Apache-2.0
// Copies of checkpoints at a second place, and starts from there (decision 1312).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "controller/core/transition.h"

namespace hpctl::core {

// A checkpoint was committed, or a generation recorded.
void want_mirror_of_checkpoint(Transition& t, Job& job);
void want_mirror_of_record(Transition& t, Job& job);
// Training went back to this step.
void undo_in_mirror(Transition& t, Job& job, uint64_t step);
bool can_mirror(Transition& t, const Job& job);
// The next order of the mirror, or to the node that verifies before copies are deleted.
void order_mirror(Transition& t, Job& job);
// The job has finished while a node was to verify: its nodes end, and the controller does it.
void finish_mirror(Transition& t, Job& job);
void mirror_failed(Transition& t, Job& job, const std::string& cause);
// A recovery needs the storage: the copy is ordered again when the job trains.
void withdraw_mirror(Transition& t, Job& job);
// The first place has lost a checkpoint that was committed: the mirror may have it.
bool may_be_in_mirror(const Job& job, const Facts::Origin& origin);
// The first place could not be searched for checkpoint.mirror.after.
bool may_replace_first_place(Transition& t, const Job& job);
// The mirror could not be searched after this answer, and has never held a checkpoint of the job:
// nothing is lost without it.
bool can_do_without_mirror(const Job& job, const std::optional<FirstPlace>& first);
void use_first_place(Transition& t, Job& job, const FirstPlace& first, const std::string& cause);
void enter_find_in_mirror(Transition& t, Job& job, const FirstPlace& first,
                          const std::string& reason);

}  // namespace hpctl::core
