// SPDX-License-Identifier: Apache-2.0
// When processes that stand by are started, asked and replaced: by an agent and its holder, and by
// the shim of a Slurm step's task.
#pragma once

#include <cstdint>

namespace hpctl {

// A standby may wait for days. It is asked so often whether it still could take part, and has so
// long to answer: it may have the lowest priority on a busy machine.
struct PingTimes {
  int64_t every_ms = 30'000;
  int64_t limit_ms = 30'000;
};

struct StandbyTimes {
  // Those of a command that tells no steps are started when it has run for so long: as long as a
  // generation of a command has to run to count as progress (decision 0106).
  int64_t without_steps_ms = 60'000;
  int64_t replace_after_ms = 5'000;
  int32_t most_replaced = 3;  // in a generation: what ends them may be for good
  // Of a shim: one that is asked when the generation ends is waited for so long when the next
  // begins, which without it takes as long as its imports.
  int64_t answer_ms = 1'000;
};

}  // namespace hpctl
