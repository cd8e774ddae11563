// SPDX-License-Identifier: Apache-2.0
// A local job that is being submitted. `hpctl submit` claims the checkpoint directory before the
// job's home knows the job. Meanwhile it holds a lock in the home, and so the claim counts as that
// of a job that lives (ask_owner.h). A submission that is killed leaves its lock free.
//
//   HPCTL_HOME/submitting-UUID   locked (flock); removed at the end of the submission
//
// The home is on a local disk, where such locks hold.
#pragma once

#include <string>
#include <utility>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/job/paths.h"

namespace hpctl {

class LocalSubmission {
 public:
  // Before the claim. `home` exists.
  static Result<LocalSubmission> begin(const HomePaths& home, const std::string& uuid);
  LocalSubmission(LocalSubmission&&) noexcept = default;
  LocalSubmission& operator=(LocalSubmission&&) = delete;
  ~LocalSubmission();

 private:
  LocalSubmission(std::string path, UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  UniqueFd lock_;  // not valid: moved from
};

// Whether the job with this UUID is being submitted to the home. Removes what a submission that was
// killed has left. An error: it cannot be looked at now, which proves nothing.
Result<bool> is_being_submitted(const HomePaths& home, const std::string& uuid);

}  // namespace hpctl
