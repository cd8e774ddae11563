// SPDX-License-Identifier: Apache-2.0
#include "controller/core/lost_time.h"

#include <algorithm>

namespace hpctl::core {

namespace {

// While it is suspended no time passes.
int64_t job_time(const Job& job, int64_t at_ms) {
  return job.suspended_since_ms == 0 ? at_ms : std::min(at_ms, job.suspended_since_ms);
}

int64_t& part_of(TimeSpent& spent, LossPart part) {
  switch (part) {
    case LossPart::kDecide:
      return spent.decide_ms;
    case LossPart::kWait:
      return spent.wait_ms;
    case LossPart::kRestart:
      return spent.restart_ms;
    case LossPart::kRepeat:
      break;
  }
  return spent.repeat_ms;
}

LossPart part_of(PlanStage stage) {
  switch (stage) {
    case PlanStage::kStopWorkers:
    case PlanStage::kFindCheckpoint:
    case PlanStage::kRecordGeneration:
      return LossPart::kDecide;
    case PlanStage::kWaitNodes:
    case PlanStage::kMeetNodes:
    case PlanStage::kRequeue:
      return LossPart::kWait;
    case PlanStage::kStartWorkers:
    case PlanStage::kNone:
      break;
  }
  return LossPart::kRestart;
}

// With the part of the loss that lasts, as if it ended at `at_ms`.
TimeSpent with_open_part(const Job& job, int64_t at_ms) {
  TimeSpent spent = job.spent;
  part_of(spent, job.loss_part) += std::max<int64_t>(0, job_time(job, at_ms) - job.part_since_ms);
  return spent;
}

// That part ends, and another begins.
void enter_part(Job& job, LossPart part, int64_t at_ms) {
  job.spent = with_open_part(job, at_ms);
  job.part_since_ms = std::max(job.part_since_ms, job_time(job, at_ms));
  job.loss_part = part;
}

void open_loss(const Transition& t, Job& job) {
  job.recovering_since_ms = job.stepped_ms != 0 ? job.stepped_ms : job_time(job, t.now());
  job.regain_step = std::max(job.regain_step, job.furthest_step);
}

// A rank that reports for the first time can make their mean smaller.
StepWaits untold(const Job& job, const StepWaits& waits) {
  return {std::max<int64_t>(0, waits.checkpoint_ms - job.told_waits.checkpoint_ms),
          std::max<int64_t>(0, waits.data_ms - job.told_waits.data_ms)};
}

// Else they are a part of what lasts.
bool counts_waits(const Job& job) {
  return job.recovering_since_ms == 0 && job.spent.start_ms != 0;
}

}  // namespace

void begin_loss(const Transition& t, Job& job) {
  if (job.recovering_since_ms != 0) return enter_part(job, LossPart::kDecide, t.now());
  open_loss(t, job);
  job.part_since_ms = job_time(job, t.now());
  job.spent.notice_ms += job.part_since_ms - job.recovering_since_ms;
  job.loss_part = LossPart::kDecide;
}

void begin_waiting(const Transition& t, Job& job) {
  if (job.recovering_since_ms != 0) return enter_part(job, LossPart::kWait, t.now());
  open_loss(t, job);
  job.part_since_ms = job.recovering_since_ms;
  job.loss_part = LossPart::kWait;
}

void count_stage(const Transition& t, Job& job, PlanStage stage) {
  if (job.recovering_since_ms != 0) enter_part(job, part_of(stage), t.now());
}

void begin_steps(const Transition& t, Job& job) {
  if (job.recovering_since_ms != 0) enter_part(job, LossPart::kRepeat, t.now());
  if (job.spent.start_ms != 0) return;
  const int64_t age_ms = t.event().wall_ms - job.submitted_wall_ms;
  const int64_t counted_ms = lost_ms(job, t.now()) + time_spent(job, t.now()).suspended_ms;
  job.spent.start_ms = std::max<int64_t>(1, age_ms - counted_ms);
}

void end_loss(Job& job, int64_t at_ms) {
  if (job.recovering_since_ms == 0) return;
  job.lost_ms += std::max<int64_t>(0, job_time(job, at_ms) - job.recovering_since_ms);
  enter_part(job, LossPart::kDecide, at_ms);
  job.recovering_since_ms = 0;
}

bool is_made_good(const Job& job, uint64_t step) {
  return job.recovering_since_ms != 0 && step >= job.regain_step;
}

void count_step(Job& job, uint64_t step, int64_t at_ms) {
  if (is_made_good(job, step)) end_loss(job, at_ms);
  const int64_t stepped_ms = job_time(job, at_ms);
  job.stepped_ms = job.stepped_ms == 0 ? stepped_ms : std::max(job.stepped_ms, stepped_ms);
}

bool count_waits(Job& job, const StepWaits& waits) {
  const StepWaits news = untold(job, waits);
  if (news == StepWaits{}) return false;
  job.told_waits.checkpoint_ms += news.checkpoint_ms;
  job.told_waits.data_ms += news.data_ms;
  if (counts_waits(job)) {
    job.spent.waits.checkpoint_ms += news.checkpoint_ms;
    job.spent.waits.data_ms += news.data_ms;
  }
  return true;
}

void end_suspension(Job& job, int64_t now_ms) {
  if (job.suspended_since_ms == 0) return;
  const int64_t for_ms = std::max<int64_t>(0, now_ms - job.suspended_since_ms);
  job.suspended_since_ms = 0;
  job.spent.suspended_ms += for_ms;
  for (int64_t* since : {&job.stepped_ms, &job.recovering_since_ms, &job.part_since_ms}) {
    if (*since != 0) *since += for_ms;
  }
}

void end_storage_wait(Job& job, int64_t now_ms) {
  if (job.storage_since_ms == 0) return;
  job.storage_waited_ms += std::max<int64_t>(0, now_ms - job.storage_since_ms);
  job.storage_since_ms = 0;
}

void continue_totals(const Transition& t, Job& job, const JobTotals& totals) {
  if (totals.submitted_wall_ms != 0) job.submitted_wall_ms = totals.submitted_wall_ms;
  job.lost_ms = totals.lost_ms;
  job.spent = totals.spent;
  job.told_waits = totals.told_waits;
  job.regain_step = totals.furthest_step;
  // Restarts without a generation record: the job ended before there was one.
  for (; job.restarts < totals.restarts; ++job.restarts) job.restart_times_ms.push_back(t.now());
  if (totals.counted_wall_ms == 0) return;
  const int64_t age_ms = std::max<int64_t>(0, t.event().wall_ms - totals.counted_wall_ms);
  job.stepped_ms = t.now() - age_ms;
  if (!totals.interrupted) return;
  job.recovering_since_ms = job.part_since_ms = job.stepped_ms;
  job.loss_part = LossPart::kWait;
}

bool shows_steps(const Job& job) {
  return job.spec.train || job.furthest_step > 0 || job.regain_step > 0;
}

int64_t lost_ms(const Job& job, int64_t now_ms) {
  if (job.recovering_since_ms == 0) return job.lost_ms;
  return job.lost_ms + std::max<int64_t>(0, job_time(job, now_ms) - job.recovering_since_ms);
}

TimeSpent time_spent(const Job& job, int64_t now_ms, const StepWaits& waits) {
  TimeSpent spent = job.recovering_since_ms == 0 ? job.spent : with_open_part(job, now_ms);
  if (counts_waits(job)) {
    const StepWaits news = untold(job, waits);
    spent.waits.checkpoint_ms += news.checkpoint_ms;
    spent.waits.data_ms += news.data_ms;
  }
  if (job.suspended_since_ms != 0) {
    spent.suspended_ms += std::max<int64_t>(0, now_ms - job.suspended_since_ms);
  }
  return spent;
}

}  // namespace hpctl::core
