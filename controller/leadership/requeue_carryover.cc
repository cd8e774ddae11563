// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/requeue_carryover.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/job/exclusion.h"
#include "controller/publish/status_files.h"

namespace hpctl {

core::RequeueCarryover read_former_life(const std::string& job_dir, JobId job,
                                        uint64_t restart_count,
                                        const std::vector<GenerationRecord>& lineage) {
  core::RequeueCarryover former;
  const bool has_begun = !lineage.empty() && lineage.back().job == job.value &&
                         lineage.back().restart_count == restart_count;
  if (restart_count == 0 || has_begun) return former;
  auto exclusion = read_exclusion(job_dir, restart_count - 1);
  if (!exclusion.ok()) {
    log_warning(exclusion.error().message + "; which nodes to do without is forgotten");
  } else {
    former.excluded = std::move(exclusion->nodes);
    former.exclusion_attempt = exclusion->attempt;
  }
  auto found = read_quarantined(job_dir, restart_count - 1);
  if (!found.ok()) {
    log_warning(found.error().message +
                "; the quarantine of nodes before the requeue is forgotten");
  } else {
    former.quarantined = std::move(found).value();
  }
  return former;
}

core::JobTotals read_totals(const HomePaths& paths, JobId job,
                            const std::vector<GenerationRecord>& lineage) {
  core::JobTotals totals;
  const auto status = read_status(paths, job);
  if (status.ok()) {
    return {status->submitted_at.unix_ms(),
            status->restarts,
            status->lost_ms,
            status->furthest_step,
            status->interrupted,
            status->counted_at.unix_ms(),
            status->spent,
            status->told_waits,
            {status->generation},
            status->checkpoint_step};
  }
  const auto first = std::find_if(lineage.begin(), lineage.end(),
                                  [&](const auto& record) { return record.job == job.value; });
  if (first != lineage.end()) totals.submitted_wall_ms = first->created_wall_ms;
  if (status.error().code != ErrorCode::kNotFound) {
    log_warning(status.error().message + "; the job's faults and lost time before are not known");
  }
  return totals;
}

}  // namespace hpctl
