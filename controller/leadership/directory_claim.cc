// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/directory_claim.h"

#include "controller/leadership/ask_owner.h"

namespace hpctl {
namespace {

// Storage that does not answer, and an owner that cannot be asked, may answer the next attempt.
core::ActionFailed failed(ActionId action, JobId job, const Error& error) {
  const bool permanent =
      error.code == ErrorCode::kFailedPrecondition || error.code == ErrorCode::kDataLoss;
  return {action, job, "", error.message, permanent};
}

std::string describe(const std::string& directory, const DirectoryClaim& claim) {
  if (!claim.former) return "";
  const std::string former = describe(*claim.former);
  if (claim.taken) {
    return "the checkpoint directory " + directory + " was taken from " + former +
           " with --take-directory";
  }
  return "the checkpoint directory " + directory + " was that of " + former + ", which has ended";
}

}  // namespace

ClaimOutcome claim_for(ActionId action, const core::Job& job, const ControllerMode& mode) {
  const std::string& directory = job.spec.checkpoint.dir;
  const bool has_begun = job.generation != Generation{};
  JobIdentity self = mode.identify(job);
  if (has_begun) {
    self.job = job.id.value;  // by which older records know it
    if (const auto ours = check_ownership(directory, self); !ours.ok()) {
      return {failed(action, job.id, ours.error()), ""};
    }
  }
  const auto claim = claim_directory(directory, self, [&](const JobIdentity& owner) {
    return ask_owner(owner, directory, mode.users_home());
  });
  if (!claim.ok()) return {failed(action, job.id, claim.error()), ""};
  return {std::nullopt, has_begun ? "" : describe(directory, *claim)};
}

}  // namespace hpctl
