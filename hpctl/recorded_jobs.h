// SPDX-License-Identifier: Apache-2.0
// The files that a controller left under HPCTL_HOME (controller/publish/status_files.h): the
// answers without a controller. kUnavailable if their file system does not answer.
#pragma once

#include <vector>

#include "hpctl/job_source.h"

namespace hpctl {

class RecordedJobs final : public JobSource {
 public:
  explicit RecordedJobs(const HomePaths& paths) : paths_(paths) {}

  Result<std::vector<JobSummary>> list_jobs() override;
  Result<JobView> get_job(JobId job) override;
  Result<std::vector<EventView>> events(JobId job, uint64_t after_seq) override;
  Result<Explanation> why(JobId job) override;
  bool is_live() const override { return false; }
  std::string notice(const JobView& job) const override;

 private:
  HomePaths paths_;
};

// The chain that led to the job's present state, from its history.
Explanation explain(const std::vector<EventView>& events, JobId job);

}  // namespace hpctl
