// SPDX-License-Identifier: Apache-2.0
// What every verb about one job begins with: the home, the job that was meant, who answers for it.
#pragma once

#include <memory>
#include <string>

#include "common/base/paths.h"
#include "hpctl/job_source.h"

namespace hpctl {

struct OpenJob {
  HomePaths paths;
  JobId id;
  std::unique_ptr<JobSource> source;
  JobView view;  // as the job was when it was opened
};

// `word` is an id or a unique name of a job of this home, or the id of a job of the caller's whose
// controller runs at a cluster controller. Never starts a controller.
Result<OpenJob> open_job(const std::string& word);

}  // namespace hpctl
