// SPDX-License-Identifier: Apache-2.0
// The plugin's settings for the shim, in its environment, and the part that the program may see.
#pragma once

#include <cstdint>
#include <string>

#include "agent/holder/standby_times.h"
#include "common/base/result.h"
#include "common/job/stack_files.h"
#include "common/worker/step_protocol.h"

namespace hpctl::shim {

// The user's variable that lists the imports of a Python standby.
inline constexpr char kStandbyImportsName[] = "HPCTL_STANDBY_IMPORTS";

struct TaskSettings {
  std::string program;  // argv[0] that the shim replaced
  std::string stacks;   // path of hpstacks; "" = none
  int64_t stacks_limit_ms = stacks_limit_or(kStacksLimitMs);
  std::string host;  // of srun, as this node reaches it
  uint16_t port = 0;
  std::string token;
  std::string node;
  int32_t rank = 0;
  int32_t tasks = 0;
  int32_t local_rank = 0;
  int32_t local_tasks = 0;
  int32_t node_rank = 0;
  int32_t nodes = 0;
  int32_t signals_all = 0;  // Slurm's signals reach the program without the shim
  // It then signals one process after the other, and the program's end may be seen before the shim
  // has the signal that ended it: for so long.
  int64_t own_signal_ms = 500;

  std::string standby_imports;  // of the user; "" = no standby is wanted
  StandbyTimes standby_times = {};
  PingTimes ping_times = {};

  // Speaks for its node, so that a notice appears once per node and not per task.
  bool is_speaker() const { return local_rank == 0; }
};

// kNotFound without a program: then nothing can be run at all. Other errors name what is missing;
// `settings.program` is set even then.
Outcome read_task_settings(TaskSettings& settings);

// Removes the plugin's variables, so that the program's environment is what Slurm made it.
void hide_step_environment();

}  // namespace hpctl::shim
