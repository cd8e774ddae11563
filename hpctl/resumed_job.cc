// SPDX-License-Identifier: Apache-2.0
#include "hpctl/resumed_job.h"

#include <optional>

#include "common/base/file.h"
#include "common/job/lineage.h"
#include "hpctl/job_source.h"
#include "hpctl/other_owner.h"
#include "hpctl/submit_directory.h"

namespace hpctl {
namespace {

Error refuse_resume(const std::string& message) {
  return Error{ErrorCode::kFailedPrecondition, message};
}

Result<std::optional<CheckpointRef>> find_newest(const std::string& directory) {
  if (directory.empty()) return std::optional<CheckpointRef>();
  return latest_valid_checkpoint(directory, {});
}

Outcome check_has_ended(const JobView& view) {
  if (has_ended(view.state)) return Ok{};
  const std::string id = std::to_string(view.job);
  return refuse_resume("job " + id + " " + view.name + " is " + view.state +
                       ", and only a job that has ended can be resumed; to end it: hpctl cancel " +
                       id);
}

Outcome check_has_checkpoints(const JobView& view) {
  if (view.checkpoint_dir.empty()) return Ok{};  // of a release that did not tell it
  HP_TRY_ASSIGN(const std::string other, find_other_owner(view, view.checkpoint_dir));
  if (other.empty()) return Ok{};
  return refuse_resume("job " + std::to_string(view.job) + " " + view.name +
                       ": its checkpoint directory " + view.checkpoint_dir + " belongs to " +
                       other + ", which went on there; resume that job");
}

}  // namespace

Result<JobSpec> spec_to_resume(const HomePaths& paths, const JobView& view) {
  HP_TRY(check_has_ended(view));
  HP_TRY(check_has_checkpoints(view));
  HP_TRY_ASSIGN(JobSpec spec, submitted_spec(paths, JobId{view.job}));
  if (!view.checkpoint_dir.empty()) spec.checkpoint.dir = view.checkpoint_dir;
  HP_TRY_ASSIGN(const auto newest, find_newest(spec.checkpoint.dir));
  if (newest) spec.checkpoint.resume = "latest";
  // The job has been in the queue already.
  spec.slurm.dependency.clear();
  spec.slurm.begin.clear();
  return spec;
}

Result<std::string> describe_start(const JobSpec& spec) {
  if (!spec.train) return std::string("its program goes on from the checkpoints that it finds");
  const CheckpointSpec& checkpoint = spec.checkpoint;
  if (checkpoint.resume == "none") return std::string("it begins at step 0");
  if (checkpoint.resume != "latest") return "it starts from " + checkpoint.resume;
  HP_TRY_ASSIGN(const auto newest, find_newest(checkpoint.dir));
  if (!newest) return std::string("it has no checkpoint, so it begins at step 0");
  if (newest->step >= static_cast<uint64_t>(spec.train->steps)) {
    return refuse_resume("all " + std::to_string(spec.train->steps) +
                         " steps are trained; to train on, give more of them: --set "
                         "workload.train.steps=N");
  }
  return "it goes on from " + newest->name() + " in " + checkpoint.dir;
}

}  // namespace hpctl
