// SPDX-License-Identifier: Apache-2.0
// Finds the job that a user means, and checks its owner.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "controller/core/core.h"

namespace hpctl {

// A job belongs to the uid that submitted it; root sees every job. A job that was removed is seen
// by no user.
constexpr bool may_see(uint32_t uid, const core::Job& job) {
  return !job.removed && (uid == 0 || uid == job.owner_uid);
}

// `text` is a job id, or a name that one of the caller's jobs has alone; of several jobs with the
// name the one that has not ended is meant. kNotFound, kPermissionDenied, kInvalidArgument
// (ambiguous) say what to do.
absl::StatusOr<JobId> find_job(const core::State& state, const std::string& text, uint32_t uid);

}  // namespace hpctl
