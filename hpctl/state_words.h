// SPDX-License-Identifier: Apache-2.0
// The state of a job as one line of plain words, for `hpctl status` and `hpctl why`. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "controller/publish/status_files.h"
#include "hpctl/last_evaluations.h"

namespace hpctl {

// "training normally, validation loss 2.3456 at step 500, ETA 1h20m". `is_live`: a controller
// answers, so the view is the present. `lost_directory`: of the job, where it is gone.
std::string state_in_words(const JobView& job, const std::optional<Validation>& validation,
                           bool is_live, WallTime now, const std::string& lost_directory = "");

}  // namespace hpctl
