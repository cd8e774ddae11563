// SPDX-License-Identifier: Apache-2.0
#include "hpctl/chaos_fit.h"

#include <algorithm>

#include "controller/core/core.h"
#include "controller/core/injection.h"

namespace hpctl {
namespace {

std::string find_misfit(const PlannedFault& planned, const JobView& job, const JobSpec* spec) {
  const bool has_rank =
      !planned.rank || std::any_of(job.workers.begin(), job.workers.end(), [&](const auto& worker) {
        return worker.rank == *planned.rank;
      });
  if (!has_rank) return "has no rank " + std::to_string(*planned.rank);
  // The nodes of a job in a scheduler's queue are not known.
  const bool has_node = planned.node.empty() || job.nodes.empty() ||
                        std::any_of(job.nodes.begin(), job.nodes.end(), [&](const NodeView& node) {
                          return node.name == planned.node;
                        });
  if (!has_node) return "has no node \"" + planned.node + "\"";
  if (job.total_steps > 0 && planned.at_step.value_or(0) >= job.total_steps) {
    return "ends at step " + std::to_string(job.total_steps);
  }
  if (spec == nullptr) return "";
  core::Job row;
  row.spec = *spec;
  std::string conflict = core::find_lasting_conflict(row, planned.fault);
  return conflict.empty() ? ""
                          : "cannot have " + std::string(to_word(planned.fault)) + ": " + conflict;
}

}  // namespace

std::string find_misfit(const ChaosPlan& plan, const JobView& job, const JobSpec* spec) {
  for (const PlannedFault& planned : plan.faults) {
    const std::string misfit = find_misfit(planned, job, spec);
    if (misfit.empty()) continue;
    const std::string name = job.job == 0 ? "the job" : "job " + std::to_string(job.job);
    return planned.where + ": " + name + " " + misfit;
  }
  return "";
}

std::string find_misfit(const ChaosPlan& plan, const JobSpec& spec, bool local) {
  if (!spec.chaos) return "the job " + std::string(kAllowsNoChaos);
  JobView job;
  job.total_steps = spec.train ? static_cast<uint64_t>(spec.train->steps) : 0;
  for (int32_t rank = 0; rank < spec.world_size(); ++rank) {
    job.workers.emplace_back().rank = rank;
  }
  for (int32_t i = 0; local && i < spec.all_nodes(); ++i) {
    job.nodes.emplace_back().name = core::local_node_name(i);
  }
  return find_misfit(plan, job, &spec);
}

}  // namespace hpctl
