// SPDX-License-Identifier: Apache-2.0
#include "controller/core/lost_time.h"

#include <algorithm>

namespace hpctl::core {

namespace {

// With the part of the loss that lasts, as if it ended at `at_ms`.
TimeSpent with_open_part(const Job& job, int64_t at_ms) {
  TimeSpent spent = job.spent;
  int64_t& part = job.repeats ? spent.repeat_ms : spent.restart_ms;
  part += std::max<int64_t>(0, at_ms - job.part_since_ms);
  return spent;
}

// That part ends, and another begins.
void end_part(Job& job, int64_t at_ms) {
  job.spent = with_open_part(job, at_ms);
  job.part_since_ms = std::max(job.part_since_ms, at_ms);
}

}  // namespace

void begin_loss(const Transition& t, Job& job) {
  if (job.recovering_since_ms != 0) {
    end_part(job, t.now());
    job.repeats = false;
    return;
  }
  job.recovering_since_ms = job.stepped_ms != 0 ? job.stepped_ms : t.now();
  job.regain_step = std::max(job.regain_step, job.furthest_step);
  job.spent.notice_ms += t.now() - job.recovering_since_ms;
  job.part_since_ms = t.now();
  job.repeats = false;
}

void begin_steps(const Transition& t, Job& job) {
  if (job.recovering_since_ms != 0) {
    end_part(job, t.now());
    job.repeats = true;
  }
  if (job.spent.start_ms != 0) return;
  const int64_t age_ms = t.event().wall_ms - job.submitted_wall_ms;
  job.spent.start_ms = std::max<int64_t>(1, age_ms - lost_ms(job, t.now()));
}

void end_loss(Job& job, int64_t at_ms) {
  if (job.recovering_since_ms == 0) return;
  job.lost_ms += std::max<int64_t>(0, at_ms - job.recovering_since_ms);
  end_part(job, at_ms);
  job.recovering_since_ms = 0;
  job.repeats = false;
}

bool is_made_good(const Job& job, uint64_t step) {
  return job.recovering_since_ms != 0 && step >= job.regain_step;
}

void count_step(Job& job, uint64_t step, int64_t at_ms) {
  if (is_made_good(job, step)) end_loss(job, at_ms);
  job.stepped_ms = job.stepped_ms == 0 ? at_ms : std::max(job.stepped_ms, at_ms);
}

void continue_totals(const Transition& t, Job& job, const JobTotals& totals) {
  if (totals.submitted_wall_ms != 0) job.submitted_wall_ms = totals.submitted_wall_ms;
  job.lost_ms = totals.lost_ms;
  job.spent = totals.spent;
  job.regain_step = totals.furthest_step;
  // Restarts that no record of a generation tells of: the job ended before there was one.
  for (; job.restarts < totals.restarts; ++job.restarts) job.restart_times_ms.push_back(t.now());
  if (totals.counted_wall_ms == 0) return;
  const int64_t age_ms = std::max<int64_t>(0, t.event().wall_ms - totals.counted_wall_ms);
  job.stepped_ms = t.now() - age_ms;
  if (totals.interrupted) job.recovering_since_ms = job.part_since_ms = job.stepped_ms;
}

bool shows_steps(const Job& job) {
  return job.spec.train || job.furthest_step > 0 || job.regain_step > 0;
}

int64_t lost_ms(const Job& job, int64_t now_ms) {
  if (job.recovering_since_ms == 0) return job.lost_ms;
  return job.lost_ms + std::max<int64_t>(0, now_ms - job.recovering_since_ms);
}

TimeSpent time_spent(const Job& job, int64_t now_ms) {
  return job.recovering_since_ms == 0 ? job.spent : with_open_part(job, now_ms);
}

}  // namespace hpctl::core
