// SPDX-License-Identifier: Apache-2.0
// When standby processes are started, checked and replaced: by an agent and its holder, and by the
// shim of a Slurm step's task.
#pragma once

#include <cstdint>

namespace hpctl {

// A standby may wait for days. The interval of checks that it can still join, and the limit for its
// answer: it may have the lowest priority on a busy machine.
struct PingTimes {
  int64_t every_ms = 30'000;
  int64_t limit_ms = 30'000;
};

struct StandbyTimes {
  // Standbys of a command that reports no steps start after this run time, the same as a generation
  // of a command needs to count as progress (decision 0106).
  int64_t without_steps_ms = 60'000;
  int64_t replace_after_ms = 5'000;
  int32_t most_replaced = 3;  // in a generation: what ends them may be for good
  // For a shim: it checks a standby when the generation ends, and waits this long for the answer
  // when the next one begins. A start without the standby takes as long as its imports.
  int64_t answer_ms = 1'000;
};

}  // namespace hpctl
