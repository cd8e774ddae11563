// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/checkpoint_directory.h"

#include <unistd.h>

#include <utility>

#include "common/base/file.h"
#include "common/job/directory_owner.h"

namespace hpctl {
namespace {

bool is_in(const std::string& path, const std::string& directory) {
  return !directory.empty() && path.starts_with(directory + "/");
}

}  // namespace

bool starts_without_directory(const Workload& workload) {
  return workload.from_memory || is_in(workload.resume_checkpoint, workload.checkpoint.mirror.dir);
}

bool has_worked(const Workload& workload) {
  return starts_without_directory(workload) ||
         is_in(workload.resume_checkpoint, workload.checkpoint_dir);
}

Error storage_error(Error error) {
  switch (error.code) {
    case ErrorCode::kNotFound:
    case ErrorCode::kPermissionDenied:
    case ErrorCode::kResourceExhausted:
      error.code = ErrorCode::kStorage;
      return error;
    default:
      return error;
  }
}

Error directory_error(const Workload& workload, Error error) {
  return has_worked(workload) ? storage_error(std::move(error)) : error;
}

// Only the controller judges that the job has lost its directory: this node may have the wrong
// mount.
Outcome check_claimed(const Workload& workload) {
  if (!workload.claimed) return Ok{};
  Outcome there = check_is_there(workload.checkpoint_dir, workload.owner);
  if (there.ok() || there.error().code != ErrorCode::kFailedPrecondition) return there;
  return Error{ErrorCode::kStorage, there.error().message};
}

bool is_of_another_job(const Workload& workload) {
  if (!workload.claimed) return false;
  const Outcome there = check_is_there(workload.checkpoint_dir, workload.owner);
  return !there.ok() && there.error().code == ErrorCode::kFailedPrecondition;
}

Outcome prepare_checkpoint_directory(const Workload& workload) {
  const std::string& directory = workload.checkpoint_dir;
  Outcome made = workload.claimed ? check_claimed(workload) : make_directories(directory);
  if (made.ok() && access(directory.c_str(), W_OK | X_OK) != 0) {
    made = errno_error("cannot write " + directory);
  }
  if (made.ok()) return made;
  Error error = directory_error(workload, made.error());
  if (error.code == ErrorCode::kStorage) return error;
  return Error{ErrorCode::kFailedPrecondition,
               "no checkpoints possible: " + error.message +
                   "; make the directory writable or choose another checkpoint.dir"};
}

}  // namespace hpctl
