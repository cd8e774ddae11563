// SPDX-License-Identifier: Apache-2.0
// SIGTERM: this worker is to end at a step boundary, with a checkpoint (time limit, scancel,
// preemption, `hpctl cancel`). The ranks agree on the boundary in the step's all-reduce.
#pragma once

#include <optional>

namespace hpctl {

// From now on SIGTERM asks for the end. More of them change nothing: Slurm and the agent may both
// send it.
void take_stop_requests();

// Between two generations there is nothing to save either: SIGTERM ends the process again, and one
// that came before does so now.
void end_on_stop_requests();

// The same from within the process. Any thread, and a signal's handler.
void request_stop();

// SIGTERM has come, or request_stop() was called.
bool is_stop_requested();

// Since the first of these; nullopt: there was none. SIGKILL follows after
// Workload::last_checkpoint_ms.
std::optional<double> seconds_since_stop();

// Ends this process as SIGTERM would have: its parent sees that it ended by the request.
[[noreturn]] void end_as_requested();

}  // namespace hpctl
