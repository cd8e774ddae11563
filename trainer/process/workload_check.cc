// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/workload_check.h"

#include <string>

namespace hpctl {

namespace {

Error wrong(const std::string& key, const std::string& message) {
  return Error{ErrorCode::kInvalidArgument, "workload: " + key + ": " + message};
}

}  // namespace

Outcome check_workload(const Workload& w) {
  if (w.world_size < 1 || w.rank < 0 || w.rank >= w.world_size) {
    return wrong("rank", "expected 0 <= rank < world_size, found " + std::to_string(w.rank) +
                             " of " + std::to_string(w.world_size));
  }
  if (w.workers_per_node < 1 || w.world_size % w.workers_per_node != 0) {
    return wrong("workers_per_node", "expected a divisor of world_size, found " +
                                         std::to_string(w.workers_per_node) + " of " +
                                         std::to_string(w.world_size));
  }
  if (w.world_size > 1 && w.rendezvous_dir.empty()) {
    return wrong("rendezvous_dir", "expected a directory that all ranks share");
  }
  if (w.checkpoint_dir.empty() || w.checkpoint_dir[0] != '/') {
    return wrong("checkpoint_dir", "expected an absolute path, found \"" + w.checkpoint_dir + "\"");
  }
  JobSpec spec;
  spec.name = w.name;
  spec.nodes = w.world_size / w.workers_per_node;
  spec.workers_per_node = w.workers_per_node;
  spec.train = w.train;
  spec.checkpoint = w.checkpoint;
  spec.recovery.snapshot = w.snapshot;
  const std::vector<SpecProblem> problems = find_problems(spec);
  if (!problems.empty()) return wrong(problems[0].key, problems[0].message);
  return Ok{};
}

}  // namespace hpctl
