// SPDX-License-Identifier: Apache-2.0
// torchrun, accelerate launch and deepspeed within workload.command: programs that start the ranks
// of a node, which is what hpctl does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"

namespace hpctl {

struct RankLauncher {
  std::string name;                  // "torchrun"
  std::string workers;               // how many ranks it starts on a node; "" = not told
  std::vector<std::string> command;  // what it starts as each rank; empty = not understood
  bool in_shell = false;             // of the text of a shell, whose words are not expanded
};
// Looks at the program itself, at what `python -m` runs, behind `uv run`, and at the commands in
// the text of `bash -c`.
std::optional<RankLauncher> find_rank_launcher(const std::vector<std::string>& command);

// A warning about the launcher of a job that starts it once on each node; "" = none. With more
// workers per node, each would start all ranks of the node: kInvalidArgument.
Result<std::string> check_rank_launcher(const JobSpec& spec);

}  // namespace hpctl
