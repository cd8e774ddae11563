// SPDX-License-Identifier: Apache-2.0
#include "controller/core/blame.h"

#include <string>

namespace hpctl::core {
namespace {

NodeRecordKind kind_of(const Fault& fault) {
  if (fault.hang) return NodeRecordKind::kHang;
  return fault.rank >= 0 ? NodeRecordKind::kWorker : NodeRecordKind::kLost;
}

}  // namespace

std::vector<NodeRecord> blame_of(const State& state, const Job& job, int64_t wall_ms) {
  std::vector<NodeRecord> records;
  if (job.spec.chaos) return records;
  const auto add = [&](const std::string& name, NodeRecordKind kind, const std::string& key,
                       const std::string& reason) {
    const auto node = state.nodes.find({job.id, name});
    if (node == state.nodes.end()) return;
    if (kind == NodeRecordKind::kLost && node->second.taken) return;
    records.push_back({wall_ms, job.id.value, name, node->second.instance_id, kind, key, reason});
  };
  for (const Fault& fault : job.recent_faults) {
    // A worker that has lost its peers blames its own node until the cause is known.
    const bool is_consequence = job.fault_is_collateral && fault.seq == job.fault_seq;
    if (fault.node.empty() || fault.in_order || is_consequence) continue;
    add(fault.node, kind_of(fault), "fault " + std::to_string(fault.seq.value), fault.cause);
  }
  for (const Straggler& slow : job.stragglers) {
    add(slow.node, NodeRecordKind::kSlow, "slow " + to_string(slow.generation), slow.evidence);
  }
  for (auto it = state.nodes.lower_bound({job.id, ""});
       it != state.nodes.end() && it->first.job == job.id; ++it) {
    const Quarantine& why = it->second.quarantine;
    if (why.by != "hpctl") continue;
    const auto kind = why.hardware ? NodeRecordKind::kHardware : NodeRecordKind::kUnfit;
    add(it->first.name, kind, "quarantine " + std::to_string(why.since_wall_ms), why.reason);
  }
  return records;
}

}  // namespace hpctl::core
