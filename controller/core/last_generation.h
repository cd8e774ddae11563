// SPDX-License-Identifier: Apache-2.0
// A job that fails for good saves its memory first (decision 0113).
#pragma once

#include <string>

#include "controller/core/transition.h"

namespace hpctl::core {

// It ends, and first the steps are saved that only its workers' memory has.
bool ends_for_good(const Job& job);
// A bad step has ended the generation whose memory the last one saves.
bool is_state_accused(const Job& job);
// Memory may have steps after the newest checkpoint, and nobody saves them yet.
bool may_save_memory(const Job& job);
// It ends so after a last generation. Precondition: may_save_memory().
void begin_ending(Transition& t, Job& job, JobState state, const std::string& reason);
// The time limit has come in a recovery: a last generation, then the queue. Likewise.
void save_memory_for_requeue(Transition& t, Job& job);
// Of a job whose workers were to save and end: that the step which memory has is in no checkpoint,
// and why. "" = nothing is lost, or memory cannot tell.
std::string describe_unsaved(Transition& t, const Job& job);
// Of a job that fails without a last generation: after which step nothing is known to be in a
// checkpoint. "" = nothing is lost, as far as is known.
std::string describe_steps_at_risk(const Job& job);
// FAILED, after a last generation where there is something to save.
void fail_for_good(Transition& t, Job& job, const std::string& reason);
// The end: the last generation has saved, or could not for `obstacle`.
void conclude_for_good(Transition& t, Job& job, const std::string& obstacle);
// Once the workers have stopped.
void find_last_state(Transition& t, Job& job);
// Every rank, in whatever way.
bool have_all_exited(Transition& t, const Job& job);

}  // namespace hpctl::core
