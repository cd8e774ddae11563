// SPDX-License-Identifier: Apache-2.0
// The expected time of a step on a known GPU: arithmetic at the usual share of the peak for this
// kind of training, against the bytes that the strategy sends. A range, not a promise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/plan/flops.h"
#include "trainer/plan/gpu_models.h"
#include "trainer/plan/memory_plan.h"

namespace hpctl {

// TorchTitan's convention. Sources: TorchTitan benchmarks, Llama-3 8B on H100 at 8192 tokens: 33.7
// (eager) to 39.0 % (compiled) with FSDP and selective checkpointing; llm-foundry, 1B to 70B: 37 to
// 46 %. The lower end allows for slower kernels, small models have less to gain. In fp32 the same
// shares of that peak are assumed.
inline constexpr double kUsualMfuLow = 0.30;
inline constexpr double kUsualMfuHigh = 0.45;
inline constexpr const char* kUsualMfuSource =
    "dense bf16 training of 1B to 70B models on H100 with FSDP reaches 34 to 46 % "
    "(TorchTitan benchmarks 2024-12, MosaicML llm-foundry); 30 to 45 % is assumed, in fp32 of the "
    "peak without matrix units";

struct SpeedPlan {
  FlopsPerToken flops;
  double tokens_per_step = 0;
  double recompute = 1;        // operations executed over those counted
  double compute_low_s = 0;    // of a step, at the high end of the usual share
  double compute_high_s = 0;   // at the low end
  double send_bytes = 0;       // per worker and step
  double communication_s = 0;  // of those on the slowest link they cross
  double offload_s = 0;        // the state's way to the GPU and back (memory.offload)
  double step_low_s = 0;       // communication hidden as far as computation lasts
  double step_high_s = 0;
  // Share of the peak in bf16 that step_high_s and step_low_s mean, as a job's own MFU counts it in
  // fp32, too.
  double mfu_low = 0;
  double mfu_high = 0;

  // By which settings are compared.
  double middle_s() const { return (step_low_s + step_high_s) / 2; }
};

// Operations executed over those counted: what activation checkpointing costs.
double recompute_factor(const TrainSpec& train, const FlopsPerToken& flops);
// Micro-batches of a step in the largest share.
int64_t passes_per_step(const PlanSetting& setting);
// Micro-batches that share the global batch, and validation.sequences where given, out without a
// rest, ascending; always 1. With another one a step or an evaluation ends with a micro-batch that
// is not full.
std::vector<int64_t> even_micros(const TrainSpec& train, int64_t world_size);

SpeedPlan plan_speed(const PlanSetting& setting, const std::vector<Block>& blocks,
                     const GpuModel& device);

}  // namespace hpctl
