// SPDX-License-Identifier: Apache-2.0
#include "controller/core/blame.h"

#include <string>

namespace hpctl::core {
namespace {

// The ranks of a node that the job has left have trained elsewhere since, and no fault came.
bool has_followed_the_machine(const Job& job, const Quarantine& why, int64_t wall_ms) {
  return is_training(job) && wall_ms - why.since_wall_ms >= kFollowedMs &&
         (job.recent_faults.empty() || job.recent_faults.back().wall_ms <= why.since_wall_ms) &&
         present_stragglers(job).empty();
}

}  // namespace

std::vector<NodeRecord> blame_of(const State& state, const Job& job, int64_t wall_ms) {
  std::vector<NodeRecord> records;
  if (job.spec.chaos) return records;
  const auto add = [&](const Node& node, NodeRecordKind kind, const std::string& key,
                       const std::string& reason) {
    records.push_back({wall_ms, job.id.value, node.key.name, node.instance_id, kind, key, reason});
  };
  for (const Fault& fault : job.recent_faults) {
    if (!fault.unreachable || wall_ms - fault.wall_ms < kExcusedWithinMs) continue;
    const auto node = state.nodes.find({job.id, fault.node});
    if (node == state.nodes.end()) continue;
    add(node->second, NodeRecordKind::kLost, "fault " + std::to_string(fault.seq.value),
        fault.cause);
  }
  for (auto it = state.nodes.lower_bound({job.id, ""});
       it != state.nodes.end() && it->first.job == job.id; ++it) {
    const Quarantine& why = it->second.quarantine;
    const std::string key = "quarantine " + std::to_string(why.since_wall_ms);
    if (why.by == "hpctl" && why.hardware) {
      add(it->second, NodeRecordKind::kHardware, key, why.reason);
    } else if (why.for_hangs && has_followed_the_machine(job, why, wall_ms)) {
      add(it->second, NodeRecordKind::kHang, key, why.reason);
    } else if (why.by == kByStraggling && has_followed_the_machine(job, why, wall_ms)) {
      add(it->second, NodeRecordKind::kSlow, key, why.evidence);
    }
  }
  return records;
}

}  // namespace hpctl::core
