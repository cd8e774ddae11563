// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/former_job.h"

#include <algorithm>

namespace hpctl::core {

GenerationRecord make_record(const FakeShell& shell, const Job& job) {
  GenerationRecord newest;
  newest.generation = job.generation.value;
  newest.start_step = job.start_step;
  newest.checkpoint = job.checkpoint;
  newest.parent = job.memory_of.value;
  newest.from_memory = newest.parent != 0;
  newest.restarts_used = job.restarts;
  newest.created_wall_ms = shell.now_ms;
  for (const auto& [key, slot] : shell.state.slots) {
    if (slot.node.empty()) continue;
    newest.members.push_back({key.rank.value, slot.node, ""});
  }
  for (const auto& [key, row] : shell.state.nodes) {
    const Quarantine& q = row.quarantine;
    if (q.by.empty() && row.rebooted_wall_ms == 0) continue;
    newest.quarantined.push_back({key.name, row.instance_id, q.by, q.reason, q.hardware,
                                  q.since_wall_ms, q.until_wall_ms, row.recovery_wall_ms, q.reboot,
                                  row.rebooted_wall_ms});
  }
  return newest;
}

JobTotals make_totals(const FakeShell& shell, const Job& job) {
  const bool interrupted = job.recovering_since_ms != 0;
  const int64_t counted_ms = interrupted ? shell.now_ms : job.stepped_ms;
  return {job.submitted_wall_ms,
          job.restarts,
          lost_ms(job, shell.now_ms),
          std::max(job.furthest_step, job.regain_step),
          interrupted,
          counted_ms == 0 ? 0 : FakeShell::wall_ms(counted_ms),
          time_spent(job, shell.now_ms)};
}

}  // namespace hpctl::core
