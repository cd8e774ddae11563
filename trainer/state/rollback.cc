// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/rollback.h"

#include <optional>

#include "common/job/lineage.h"

namespace hpctl {

Result<std::string> rollback_source(const Workload& workload, uint64_t target) {
  HP_TRY_ASSIGN(const auto complete, list_checkpoints(workload.checkpoint_dir));
  std::optional<CheckpointRef> best;    // newest at or before the target
  std::optional<CheckpointRef> oldest;  // of this generation
  for (const CheckpointRef& ref : complete) {
    if (ref.generation != workload.generation) continue;
    if (!oldest) oldest = ref;
    if (ref.step <= target) best = ref;
  }
  const auto path = [&](const CheckpointRef& ref) {
    return workload.checkpoint_dir + "/" + ref.name();
  };
  if (best) return path(*best);
  const bool from_seed = workload.resume_checkpoint.empty() && !workload.from_memory;
  bool start = false;
  if (!from_seed && !workload.from_memory) {
    HP_TRY_ASSIGN(start, has_manifest(workload.resume_checkpoint));
  }
  // All of this generation's own lie after the target, and the start lies before them.
  const auto start_is_nearer = [&] {
    const uint64_t first = workload.start_step;
    return first >= target || target - first <= oldest->step - target;
  };
  if (oldest && !(start && start_is_nearer())) return path(*oldest);
  if (start || from_seed) return workload.resume_checkpoint;
  if (workload.from_memory) {
    return Error{ErrorCode::kDataLoss,
                 "cannot go back to step " + std::to_string(target) +
                     ": what this generation started from was in memory, and it has saved nothing "
                     "yet; start from a checkpoint"};
  }
  return Error{ErrorCode::kFailedPrecondition,
               "cannot go back to step " + std::to_string(target) +
                   ": no checkpoint of this run is left; keep more (checkpoint.keep) or save more "
                   "often (checkpoint.every_steps)"};
}

}  // namespace hpctl
