// SPDX-License-Identifier: Apache-2.0
// A job that was resumed goes on in the checkpoint directory of the first one, which belongs to it
// from then on.
#pragma once

#include <string>

#include "common/base/result.h"
#include "controller/publish/status_files.h"

namespace hpctl {

// The other job that has the directory by now, for people. "" = the directory is this job's, a
// command's or nobody's, or the job is of a release that did not tell its UUID.
Result<std::string> find_other_owner(const JobView& job, const std::string& directory);

}  // namespace hpctl
