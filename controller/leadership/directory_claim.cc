// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/directory_claim.h"

#include "controller/engine/mirror.h"
#include "controller/leadership/ask_owner.h"

namespace hpctl {
namespace {

// Silent storage, and a silent owner, may answer the next attempt. An owner.json that one reader
// finds damaged ends no job that has trained.
core::ActionFailed claim_failed(ActionId action, const core::Job& job, const Error& error) {
  const bool has_begun = job.generation != Generation{};
  const bool permanent = error.code == ErrorCode::kFailedPrecondition ||
                         (error.code == ErrorCode::kDataLoss && !has_begun);
  return {action, job.id, "", error.message, permanent};
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

// A directory that lost everything is the job's own again if the mirror can prove it.
Outcome check_begun(const core::Job& job, const JobIdentity& self) {
  const CheckpointSpec& places = job.spec.checkpoint;
  const Outcome ours = check_ownership(places.dir, self);
  const bool is_empty = !ours.ok() && ours.error().code == ErrorCode::kStorage;
  if (!is_empty || places.mirror.dir.empty()) return ours;
  HP_TRY(check_ownership(places.mirror.dir, self));
  HP_TRY(restore_lineage(places, job.generation));
  return check_ownership(places.dir, self);
}

}  // namespace

ClaimOutcome claim_mirror(ActionId action, const core::Job& job, const ControllerMode& mode) {
  const std::string& directory = job.spec.checkpoint.mirror.dir;
  JobIdentity self = mode.identify(job);
  self.job = job.id.value;
  const auto refused = [&](const Error& error) {
    return ClaimOutcome{core::ActionFailed{action, job.id, "", error.message}, ""};
  };
  if (job.mirror.step > 0) {
    if (const auto ours = check_ownership(directory, self); !ours.ok())
      return refused(ours.error());
  }
  const auto claim = claim_directory(directory, self, [&](const JobIdentity& owner) {
    return ask_owner(owner, directory, mode.users_home());
  });
  if (!claim.ok()) return refused(claim.error());
  return {std::nullopt, ""};
}

ClaimOutcome claim_for(ActionId action, const core::Job& job, const ControllerMode& mode) {
  const std::string& directory = job.spec.checkpoint.dir;
  const bool has_begun = job.generation != Generation{};
  JobIdentity self = mode.identify(job);
  if (has_begun) {
    self.job = job.id.value;  // by which older records know it
    if (const auto ours = check_begun(job, self); !ours.ok()) {
      return {claim_failed(action, job, ours.error()), ""};
    }
  }
  const auto claim = claim_directory(directory, self, [&](const JobIdentity& owner) {
    return ask_owner(owner, directory, mode.users_home());
  });
  if (!claim.ok()) return {claim_failed(action, job, claim.error()), ""};
  return {std::nullopt, has_begun ? "" : describe(directory, *claim)};
}

}  // namespace hpctl
