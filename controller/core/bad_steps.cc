// SPDX-License-Identifier: Apache-2.0
// Steps that the trainer did not apply. It has decided and acted already; here its decision becomes
// history and counts. Repetitions are known by generation and number, and told once.
#include "controller/core/last_generation.h"
#include "controller/core/mirror.h"
#include "controller/core/rules.h"
#include "controller/core/verification.h"

namespace hpctl::core {

namespace {

void count(BadStepRecord& record, const BadStepFound& e) {
  switch (e.finding) {
    case BadStepFinding::kNotFinite:
      ++record.not_finite;
      break;
    case BadStepFinding::kLossSpike:
      ++record.loss_spikes;
      break;
    case BadStepFinding::kGradientSpike:
      ++record.gradient_spikes;
      break;
  }
  if (e.verdict == BadStepVerdict::kSameResult) ++record.same_results;
  if (e.verdict == BadStepVerdict::kOtherResult) ++record.hardware_suspected;
  record.skipped_samples += e.samples;
  switch (e.outcome) {
    case BadStepOutcome::kRolledBack:
      ++record.rollbacks;
      ++record.skipped_steps;
      break;
    case BadStepOutcome::kSkipped:
      ++record.skipped_steps;
      break;
    case BadStepOutcome::kStopped:
    case BadStepOutcome::kGaveUp:
      ++record.stops;
      break;
  }
}

bool ends_workers(const BadStepFound& e) {
  return e.outcome == BadStepOutcome::kStopped || e.outcome == BadStepOutcome::kGaveUp;
}

// A fault that turned out to be all ranks' was blamed on the first reporter.
void absolve(Transition& t, Job& job) {
  if (job.recent_faults.empty() || job.recent_faults.back().seq != job.fault_seq) return;
  Fault& fault = job.recent_faults.back();
  Node* node = fault.rank < 0 ? nullptr : t.node(job.id, fault.node);
  fault.node.clear();
  fault.rank = -1;
  if (node == nullptr || node->fault_times_ms.empty()) return;
  node->fault_times_ms.pop_back();
  t.changed(*node);
}

void tell_suspect(Transition& t, const Job& job, const BadStepFound& e) {
  const Slot* slot = t.slot(job.id, Rank{e.blamed_rank});
  const std::string node = slot == nullptr ? "" : slot->node;
  t.note("HardwareFaultSuspected", job,
         slot == nullptr
             ? "executed again, the step gave other gradients on some node although the losses are "
               "the same"
             : "executed again, rank " + std::to_string(e.blamed_rank) + " on " + node +
                   " computed another loss from the same data and weights",
         node, e.blamed_rank);
}

void tell_outcome(Transition& t, const Job& job, const BadStepFound& e) {
  const std::string left_out = std::to_string(e.samples) + " samples are left out for good";
  const std::string after = "training goes on after step " + std::to_string(e.resumed_step);
  switch (e.outcome) {
    case BadStepOutcome::kSkipped:
      t.note("BatchSkipped", job, left_out + "; " + after).step = e.resumed_step;
      break;
    case BadStepOutcome::kRolledBack:
      t.note("TrainingRolledBack", job,
             "from step " + std::to_string(e.step) + " back; " + after + "; " + left_out)
          .step = e.resumed_step;
      break;
    case BadStepOutcome::kGaveUp:
      t.note("TrainingStopped", job, "stability.max_skips batches were left out already");
      break;
    case BadStepOutcome::kStopped:
      t.note("TrainingStopped", job,
             e.verdict == BadStepVerdict::kOtherResult
                 ? "the workers end: results of a faulty machine are not trained on"
                 : "the workers end, as stability.policy has it");
      break;
  }
}

}  // namespace

void on(Transition& t, const BadStepFound& e) {
  Job* job = t.job(e.job);
  if (job == nullptr || e.generation > job->generation) {
    t.refuse(e.job, "a bad step of a generation that is not known", e.node);
    return;
  }
  BadStepRecord& record = job->bad_step;
  const bool newer = e.generation == record.generation ? e.number > record.number
                                                       : e.generation > record.generation;
  if (!newer) {
    t.result().refusal = "bad step " + std::to_string(e.number) + " of generation " +
                         to_string(e.generation) + " was known";
    t.result().log.clear();
    return;
  }
  record.generation = e.generation;
  record.number = e.number;
  record.stopped_seq = ends_workers(e) ? t.seq() : Seq{};
  record.stopped_by = e.blamed_rank;
  count(record, e);
  t.changed(*job);
  if (e.verdict == BadStepVerdict::kOtherResult) tell_suspect(t, *job, e);
  tell_outcome(t, *job, e);
  const bool undoes = e.outcome == BadStepOutcome::kRolledBack && e.generation == job->generation;
  if (undoes) {
    job->committed_step = std::min(job->committed_step, e.resumed_step);
    undo_in_mirror(t, *job, e.resumed_step);
    forget_verifications(t, *job);  // another checkpoint may get the same name
  }
  // The exit that it explains was reported first, by another node.
  const bool failed = job->state == JobState::kFailed || ends_for_good(*job);
  if (ends_workers(e) && e.generation == job->generation && (failed || is_preparing(*job))) {
    const Slot* slot = t.slot(job->id, Rank{e.blamed_rank});
    if (slot == nullptr) absolve(t, *job);
    LogEntry& told = t.note_because(failed ? job->plan_seq : job->fault_seq, "CauseFound", *job,
                                    "step " + std::to_string(e.step) + ": " + e.reason +
                                        "; this explains: " + (failed ? job->reason : job->fault));
    if (slot == nullptr) return;
    told.node = slot->node;
    told.rank = e.blamed_rank;
  }
}

}  // namespace hpctl::core
