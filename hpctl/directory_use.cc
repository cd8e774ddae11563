// SPDX-License-Identifier: Apache-2.0
#include "hpctl/directory_use.h"

#include <algorithm>

#include "common/job/lineage.h"
#include "controller/leadership/ask_owner.h"
#include "trainer/checkpoint/mirror.h"

namespace hpctl {
namespace {

Error mistake(const std::string& message) { return Error{ErrorCode::kInvalidArgument, message}; }

AskOwner asker(const std::string& directory, const HomePaths& paths) {
  return
      [directory, paths](const JobIdentity& owner) { return ask_owner(owner, directory, paths); };
}

}  // namespace

Outcome check_anew(const CheckpointSpec& checkpoint, bool fresh) {
  if (checkpoint.resume == "latest") {
    if (!fresh) return Ok{};
    return mistake(
        "--fresh: the job file says checkpoint.resume: latest, which goes on from what is there; "
        "set checkpoint.resume: none, or a path");
  }
  if (fresh || checkpoint.dir.empty()) return Ok{};
  HP_TRY_ASSIGN(auto found, list_checkpoints(checkpoint.dir));
  // No job has made what was imported.
  std::erase_if(found, [](const CheckpointRef& ref) { return ref.generation == 0; });
  if (found.empty()) return Ok{};
  return mistake("checkpoint.resume: " + checkpoint.resume + ": " + checkpoint.dir + " has " +
                 std::to_string(found.size()) + " checkpoints of earlier jobs, the newest " +
                 found.back().name() +
                 ", and no job would go on from them any more; set checkpoint.resume: latest to go "
                 "on, choose another directory, or submit with --fresh to start from the beginning "
                 "beside them");
}

Outcome check_mirror(const JobSpec& spec) {
  const CheckpointSpec& checkpoint = spec.checkpoint;
  if (checkpoint.mirror.dir.empty()) return Ok{};
  if (!spec.train) {
    return Error{ErrorCode::kInvalidArgument,
                 "checkpoint.mirror.dir: only the checkpoints of the built-in trainer "
                 "(workload.train) are mirrored; leave the key out"};
  }
  return checkpoint.dir.empty() ? Ok{} : check_apart(checkpoint.dir, checkpoint.mirror.dir);
}

Result<DirectoryClaim> claim_given_directory(const JobSpec& spec, const HomePaths& paths,
                                             const JobIdentity& self, LivingOwner living) {
  const std::string& directory = spec.checkpoint.dir;
  if (directory.empty()) return DirectoryClaim{};
  return claim_directory(directory, self, asker(directory, paths), living);
}

Outcome check_given_directory(const JobSpec& spec, const HomePaths& paths) {
  const std::string& directory = spec.checkpoint.dir;
  if (directory.empty()) return Ok{};
  return check_claim(directory, JobIdentity{}, asker(directory, paths));
}

}  // namespace hpctl
