// SPDX-License-Identifier: Apache-2.0
#include "hpctl/open_job.h"

#include <utility>

#include "hpctl/submit_directory.h"

namespace hpctl {

namespace {

// An id of Slurm's needs no list, for which Slurm would be asked about every job.
Result<JobId> find_job(const HomePaths& paths, const std::string& word) {
  for (const JobId job : slurm_jobs(paths)) {
    if (to_string(job) == word) return job;
  }
  return find_job(*open_source(paths), word);
}

}  // namespace

Result<OpenJob> open_job(const std::string& word) {
  HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
  HP_TRY_ASSIGN(const JobId id, find_job(paths, word));
  auto source = open_source(paths, id);
  auto view = source->get_job(id);
  if (!view.ok() && view.error().code == ErrorCode::kUnavailable && source->is_live()) {
    source = open_record(paths, id);  // the controller has ended since it was found
    view = source->get_job(id);
  }
  if (!view.ok()) return view.error();
  return OpenJob{paths, id, std::move(source), std::move(*view)};
}

}  // namespace hpctl
