// SPDX-License-Identifier: Apache-2.0
// The end of jobs without a controller, kept across the end of the service: STATE/ended.json,
// replaced as a whole (docs/formats.md). Times in the file are of the wall clock, times of
// JobReports of a monotonic one. An unreadable file costs the list and nothing else.
#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "controller/cluster/job_reports.h"

namespace hpctl::cluster {

// Not for several threads at once.
class EndedJobs {
 public:
  // In an existing directory. `clock` outlives this.
  EndedJobs(std::string path, const Clock& clock) : path_(std::move(path)), clock_(clock) {}

  Outcome write(const std::vector<JobReports::Ended>& ended) const;
  // None where there is no file. kDataLoss: it is damaged.
  Result<std::vector<JobReports::Ended>> load() const;

 private:
  const std::string path_;
  const Clock& clock_;
};

}  // namespace hpctl::cluster
