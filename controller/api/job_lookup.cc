// SPDX-License-Identifier: Apache-2.0
#include "controller/api/job_lookup.h"

#include <vector>

namespace hpctl {
namespace {

absl::StatusOr<JobId> find_by_name(const core::State& state, const std::string& name,
                                   uint32_t uid) {
  std::vector<JobId> all;
  std::vector<JobId> live;
  for (const auto& [id, job] : state.jobs) {
    if (job.spec.name != name || !may_see(uid, job)) continue;
    all.push_back(id);
    if (!core::has_ended(job.state)) live.push_back(id);
  }
  const std::vector<JobId>& meant = live.empty() ? all : live;
  if (meant.size() == 1) return meant.front();
  if (meant.empty()) {
    return absl::NotFoundError("there is no job \"" + name + "\"; hpctl ps lists the jobs");
  }
  return absl::InvalidArgumentError("several jobs are called \"" + name + "\"; use the number, " +
                                    to_string(meant.front()) + " to " + to_string(meant.back()));
}

}  // namespace

absl::StatusOr<JobId> find_job(const core::State& state, const std::string& text, uint32_t uid) {
  const bool number = !text.empty() && text.size() <= 18 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  if (number) {
    const auto it = state.jobs.find(JobId{std::stoull(text)});
    if (it != state.jobs.end() && !it->second.removed) {
      if (may_see(uid, it->second)) return it->first;
      return absl::PermissionDeniedError("job " + text + " belongs to uid " +
                                         std::to_string(it->second.owner_uid));
    }
  }
  return find_by_name(state, text, uid);
}

}  // namespace hpctl
