// SPDX-License-Identifier: Apache-2.0
#include "controller/engine/prune.h"

#include "trainer/checkpoint/commit.h"

namespace hpctl {

std::optional<core::EventBody> prune_checkpoints(ActionId id, const core::PruneCheckpoints& action,
                                                 const JobSpec& spec,
                                                 const std::function<bool()>& goes_on) {
  const RetentionOrder order{.generation = action.generation.value,
                             .keep = spec.checkpoint.keep,
                             .keep_every = spec.checkpoint.keep_every,
                             .depth = spec.checkpoint.verify_before_delete,
                             .for_room = action.for_room,
                             .unfinished = action.unfinished,
                             .asks = action.asks,
                             .verified = action.verified,
                             .goes_on = goes_on};
  const auto done = delete_older_checkpoints(spec.checkpoint.dir, order);
  if (!goes_on()) return std::nullopt;
  if (!done.ok()) return core::ActionFailed{id, action.job, "", done.error().message};
  const std::string& problem = done->problem.empty() ? done->refused : done->problem;
  return core::CheckpointsPruned{id,      action.job,     done->verified, done->deleted,
                                 problem, done->to_verify};
}

}  // namespace hpctl
