// SPDX-License-Identifier: Apache-2.0
#include "hpctl/silent_home.h"

#include "hpctl/directory_answer.h"

namespace hpctl {

Outcome SilentHome::check_client() const {
  if (client_ != nullptr) return Ok{};
  return Error{ErrorCode::kUnavailable, describe_verdict(paths_.jobs())};
}

Result<std::vector<JobSummary>> SilentHome::list_jobs() {
  HP_TRY(check_client());
  return client_->list_jobs();
}

Result<JobView> SilentHome::get_job(JobId job) {
  HP_TRY(check_client());
  return client_->get_job(job);
}

Result<std::vector<EventView>> SilentHome::events(JobId job, uint64_t after_seq) {
  HP_TRY(check_client());
  return client_->events(job, after_seq);
}

Result<Explanation> SilentHome::why(JobId job) {
  HP_TRY(check_client());
  return client_->why(job);
}

std::string SilentHome::notice(const JobView&) const { return describe_verdict(paths_.jobs()); }

}  // namespace hpctl
