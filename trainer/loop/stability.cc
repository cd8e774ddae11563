// SPDX-License-Identifier: Apache-2.0
// The training loop's reaction to a step with a bad loss or gradient norm. All decisions depend on
// numbers that all ranks have in common, so all ranks do the same.
#include <array>
#include <bit>
#include <string>

#include "common/base/log.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/data/batch_ramp.h"
#include "trainer/loop/generation.h"
#include "trainer/state/rollback.h"

namespace hpctl {

// `samples` is what the step trained on; nothing of it was applied.
Outcome Generation::leave_out(const StepSamples& samples, const StabilityProblem& problem) {
  const StabilitySpec& spec = run_.train().stability;
  const uint64_t step = next_step();
  const std::string what = "step " + std::to_string(step) + ": " + problem.reason;
  BadStep bad_step;
  bad_step.step = step;
  bad_step.finding = problem.finding;
  bad_step.reason = problem.reason;
  engine_->gather_anew();  // a gathered copy that memory has spoilt would do the same again
  if (spec.reexecute) HP_TRY(reexecute(samples, what, bad_step));
  if (spec.policy == BadStepPolicy::kStop) {
    bad_step.outcome = BadStepOutcome::kStopped;
    tell(bad_step);
    // Executed twice with the same result, or left to the restart, which executes it again.
    const ErrorCode code = spec.reexecute ? ErrorCode::kFailedPrecondition : ErrorCode::kInternal;
    return Error{code, what + (spec.reexecute ? ", twice with the same result" : "") +
                           "; the step was not applied. If it repeats, lower optimizer.lr, look at "
                           "the data of this step, or set stability.policy to skip or rollback"};
  }
  if (state().stability().skips >= static_cast<uint64_t>(spec.max_skips)) {
    bad_step.outcome = BadStepOutcome::kGaveUp;
    tell(bad_step);
    return Error{ErrorCode::kFailedPrecondition,
                 what + "; stability.max_skips (" + std::to_string(spec.max_skips) +
                     ") batches were left out already: lower optimizer.lr or look at the data"};
  }
  bad_step.outcome = BadStepOutcome::kSkipped;
  std::vector<SampleRange> skipped = samples.ranges;
  if (spec.policy == BadStepPolicy::kRollback) {
    bad_step.outcome = BadStepOutcome::kRolledBack;
    const uint64_t more = static_cast<uint64_t>(spec.skip_steps) *
                          global_batch(run_.train().batch, samples.next_cursor);
    const StepSamples following = take_samples(samples.next_cursor, more, state().skipped());
    skipped.insert(skipped.end(), following.ranges.begin(), following.ranges.end());
    HP_TRY(go_back());
  }
  state().skip(skipped);
  ++state().stability().skips;
  HP_TRY(note_skipped(step, normalized(skipped)));
  bad_step.samples = sample_count(skipped);
  bad_step.resumed_step = state().step();
  tell(bad_step);
  if (workload_.rank == 0) {
    log_warning(what + "; " + std::to_string(bad_step.samples) +
                " samples are left out for good, training goes on after step " +
                std::to_string(bad_step.resumed_step));
  }
  return Ok{};
}

// Rank 0 reports it to the controller: all ranks decided the same. No rank ends before the report:
// another's end may be the end of a rank 0 that has not got so far.
void Generation::tell(const BadStep& bad_step) {
  if (workload_.rank == 0) progress_.bad_step(bad_step);
  const bool ends =
      bad_step.outcome == BadStepOutcome::kStopped || bad_step.outcome == BadStepOutcome::kGaveUp;
  if (!ends) return;
  [[maybe_unused]] const Outcome all_know = comms_->world().barrier();
}

// fp16: nothing of the step was applied, and the next one is computed with another scale. Its
// samples are gone, as in Megatron-LM and DeepSpeed; the step number is not.
Outcome Generation::leave_out_overflow(const StepSamples& samples, uint64_t scale) {
  const uint64_t step = next_step();
  state().skip(samples.ranges);
  HP_TRY(note_skipped(step, normalized(samples.ranges)));
  if (workload_.rank == 0) {
    const LossScaleRecord& record = state().loss_scale();
    log_info("step " + std::to_string(step) + ": gradients overflow at loss scale " +
             std::to_string(scale) + ", " + std::to_string(sample_count(samples.ranges)) +
             " samples are left out; from here on " + std::to_string(record.scale) + " (overflow " +
             std::to_string(record.overflows) + ")");
  }
  return Ok{};
}

// The same step once more, from the same state and data: a machine that computes rightly comes to
// the same bits. Ok when all did; otherwise an error, on the rank to blame where one is known and
// as its consequence (kPeerLost) on the others.
Outcome Generation::reexecute(const StepSamples& samples, const std::string& what,
                              BadStep& bad_step) {
  const std::array<double, 2> first = own_sums_;
  const auto again = compute_gradients(samples, OnStop::kFinish);
  if (!again.ok()) return again.error();
  const auto differs = [&](size_t i) {
    return std::bit_cast<uint64_t>(first[i]) != std::bit_cast<uint64_t>(own_sums_[i]);
  };
  HP_TRY_ASSIGN(const std::vector<std::string> answers,
                comms_->world().all_gather_text(differs(0)   ? "loss of " + workload_.node
                                                : differs(1) ? "gradient"
                                                             : ""));
  bool same = true;
  for (const std::string& answer : answers) same = same && answer.empty();
  bad_step.verdict = same ? BadStepVerdict::kSameResult : BadStepVerdict::kOtherResult;
  if (same) return Ok{};
  bad_step.outcome = BadStepOutcome::kStopped;
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    if (!answers[rank].starts_with("loss")) continue;
    bad_step.blamed_rank = static_cast<int32_t>(rank);
    tell(bad_step);
    const std::string verdict = what + "; executed again, rank " + std::to_string(rank) +
                                " computed another loss from the same data and weights: a fault "
                                "of the hardware of node " +
                                answers[rank].substr(8);
    const bool mine = static_cast<int32_t>(rank) == workload_.rank;
    return Error{mine ? ErrorCode::kInternal : kPeerLost, verdict};
  }
  tell(bad_step);
  return Error{ErrorCode::kInternal,
               what +
                   "; executed again, the gradients differ although every rank's loss is the "
                   "same: a fault of the hardware of some node"};
}

Outcome Generation::note_skipped(uint64_t step, const std::vector<SampleRange>& skipped) {
  if (!ledger_) return Ok{};
  return storage_.until_done([&] { return ledger_->append_skip(step, skipped, state().step()); });
}

// To a state at least rollback_steps before, as far as this generation has one.
Outcome Generation::go_back() {
  HP_TRY(saver_->settle());
  if (snapshots_) HP_TRY(snapshots_->forget());
  const auto distance = static_cast<uint64_t>(run_.train().stability.rollback_steps);
  const uint64_t target = next_step() > distance ? next_step() - distance : 0;
  std::string mine;
  if (workload_.rank == 0) {
    const auto source = rollback_source(workload_, target);
    mine = source.ok() ? "+" + *source : "-" + source.error().message;
  }
  HP_TRY_ASSIGN(const std::vector<std::string> texts, comms_->world().all_gather_text(mine));
  if (texts[0].starts_with("-")) {
    const auto code = workload_.from_memory ? ErrorCode::kDataLoss : ErrorCode::kFailedPrecondition;
    return Error{code, texts[0].substr(1)};
  }
  HP_TRY(state().go_back(texts[0].substr(1)));
  // Newer checkpoints stay until every rank has read all of its part.
  HP_TRY(comms_->world().barrier());
  if (workload_.rank == 0) {
    if (state().step() > target) {
      log_warning("went back to step " + std::to_string(state().step()) + ", not to " +
                  std::to_string(target) + ": the oldest checkpoint left; raise checkpoint.keep");
    }
    HP_TRY(undo_checkpoints(workload_.checkpoint_dir, workload_.generation, state().step()));
  }
  // No rank writes a checkpoint with a name that is about to be taken away.
  HP_TRY(comms_->world().barrier());
  saver_->forget_after(state().step());
  return Ok{};
}

}  // namespace hpctl
