// SPDX-License-Identifier: Apache-2.0
#include "hpctl/queued_release.h"

#include <utility>
#include <vector>

#include "common/base/join.h"
#include "common/job/exclusion.h"
#include "common/job/lineage.h"
#include "hpctl/slurm_answers.h"

namespace hpctl {
namespace {

// An entry without `by` stays: it says that the node is known, and not quarantined. Without any
// entry the next controller would read the newest generation's record instead.
Result<bool> release_quarantined(const std::string& job_dir, uint64_t life,
                                 const std::string& node) {
  HP_TRY_ASSIGN(auto nodes, read_quarantined(job_dir, life));
  bool found = false;
  for (QuarantinedNode& known : nodes) {
    if (known.node != node || known.by.empty()) continue;
    QuarantinedNode released;
    released.node = known.node;
    released.instance_id = known.instance_id;
    known = std::move(released);
    found = true;
  }
  if (found) HP_TRY(write_quarantined(job_dir, life, nodes));
  return found;
}

Result<bool> release_excluded(const std::string& job_dir, uint64_t life, const std::string& node) {
  HP_TRY_ASSIGN(Exclusion exclusion, read_exclusion(job_dir, life));
  const bool found = std::erase(exclusion.nodes, node) > 0;
  if (found) HP_TRY(write_exclusion(job_dir, life, exclusion));
  return found;
}

}  // namespace

Result<std::optional<std::string>> release_in_queue(const HomePaths& paths, JobId job,
                                                    const std::string& node) {
  const auto slurm = SlurmAnswers::of_process().job(job);
  if (!slurm.ok() || slurm->state != "PENDING" || slurm->restart_count == 0) {
    return std::optional<std::string>();
  }
  const uint64_t life = slurm->restart_count - 1;
  HP_TRY_ASSIGN(const bool quarantined, release_quarantined(paths.job(job), life, node));
  HP_TRY_ASSIGN(const bool excluded, release_excluded(paths.job(job), life, node));
  if (!quarantined && !excluded) return std::optional<std::string>();
  std::string text = node + " of job " + to_string(job) +
                     " is released; the job, which is in Slurm's queue, may use it when it starts";
  std::vector<std::string> others = slurm->excluded_nodes;
  if (std::erase(others, node) > 0) {
    text += "; Slurm still excludes it: scontrol update JobId=" + to_string(job) +
            " ExcNodeList=" + join(others, ",");
  }
  return std::optional<std::string>(std::move(text));
}

}  // namespace hpctl
