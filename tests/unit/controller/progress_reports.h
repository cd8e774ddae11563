// SPDX-License-Identifier: Apache-2.0
// A job and what its ranks report, for tests of ProgressTable.
#pragma once

#include "common/worker/worker_abi.h"
#include "controller/agents/progress.h"

namespace hpctl {

inline core::Job running_job(uint64_t generation, uint64_t start_step) {
  core::Job job;
  job.id = JobId{1};
  job.spec.nodes = 2;
  job.spec.workers_per_node = 2;
  job.spec.train = TrainSpec{};
  job.state = core::JobState::kStarting;
  job.generation = Generation{generation};
  job.start_step = start_step;
  return job;
}

inline RankReport at_step(int32_t rank, uint64_t generation, uint64_t step, uint64_t collective) {
  RankReport report;
  report.rank = rank;
  report.generation = generation;
  report.phase = static_cast<uint32_t>(WorkerPhase::kTraining);
  report.step = step;
  report.collective = collective;
  report.loss = 2.5F;
  report.tokens = 1'000;
  report.step_ns = 100'000'000;
  report.first_step_unix_ns = step > 0 ? 1 : 0;
  return report;
}

}  // namespace hpctl
