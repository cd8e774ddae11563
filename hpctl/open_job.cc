// SPDX-License-Identifier: Apache-2.0
#include "hpctl/open_job.h"

#include <utility>

namespace hpctl {

Result<OpenJob> open_job(const std::string& word) {
  HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
  auto source = open_source(paths);
  HP_TRY_ASSIGN(const JobId id, find_job(*source, word));
  HP_TRY_ASSIGN(JobView view, source->get_job(id));
  return OpenJob{paths, id, std::move(source), std::move(view)};
}

std::unique_ptr<JobSource> open_source(const HomePaths& paths, JobId) { return open_source(paths); }

}  // namespace hpctl
