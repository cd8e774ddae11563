// SPDX-License-Identifier: Apache-2.0
// From the task to its step's controller.
#pragma once

#include <cstdint>
#include <string>

#include "agent/shim/task_settings.h"
#include "common/net/frame_stream.h"

namespace hpctl::shim {

// Connects, says Hello and waits for Welcome, each within its time (common/worker/step_protocol.h).
// The error says what did not answer.
Result<FrameStream> join_step(const TaskSettings& settings);

// A TCP port that is free on this node at this moment; 0 when there is none.
uint16_t find_free_port();

}  // namespace hpctl::shim
