// SPDX-License-Identifier: Apache-2.0
// The plan's choice for keys that job.yaml leaves to `auto` (AutoKeys): the fastest that fits.
//
// The plan considers all values of those keys that the job may have. These are strategies and
// checkpointing that agree with its other keys; micro-batches that divide the global batch (and
// validation.sequences, if given) evenly, or 1; logits at once or in chunks. A choice fits if it
// needs at most kUsableMemory of a worker's memory by plan_memory(), on every number of nodes that
// the job may go on with (nodes.min); or, if none does, on all of its nodes. The first criterion
// that differs decides:
//
//   1. the least time of a step by plan_speed(); on a CPU, where the plan knows no times, the least
//      recomputation, with the strategy and micro-batch that take the least memory
//   2. the fewest bytes sent
//   3. the fewest passes in a step
//   4. logits at once, or else in larger chunks
//   5. the least memory
//   6. the order in which docs/job-yaml.md lists them
//
// The same job and memory give the same choice: it is a pure function. Micro-batch, strategy and
// chunk of a job decide how sums are rounded, so the choice is made once, when the job is submitted
// (docs/decisions/1311-automatic.md).
#pragma once

#include <string>
#include <vector>

#include "common/job/job_spec.h"
#include "common/layout/block_layout.h"
#include "trainer/plan/gpu_models.h"

namespace hpctl {

// The memory of one worker, as far as it is known where the job is submitted.
struct WorkerMemory {
  const GpuModel* gpu = nullptr;  // null: a CPU, or what it is is not known
  double bytes = 0;               // 0 = not known
  std::string source;             // "h100 of slurm.gres"; or why it is not known
};

struct Automatic {
  TrainSpec train;      // the job's with what was chosen; nothing in it is auto any more
  ChosenValues chosen;  // the same in words, in the order of job.yaml; none where nothing is auto
  // Nothing fits: the smallest need (which `train` has) and what to do about it; "" = it fits, or
  // no memory is known.
  std::string misfit;
};

// Precondition: a job with workload.train without problems by find_problems(). `blocks` of its
// model. If memory is unknown, the choice is the first values that the job may have: the defaults
// without a plan.
Automatic choose_automatic(const JobSpec& spec, const std::vector<Block>& blocks,
                           const WorkerMemory& memory);

}  // namespace hpctl
