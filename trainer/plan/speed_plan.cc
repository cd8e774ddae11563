// SPDX-License-Identifier: Apache-2.0
#include "trainer/plan/speed_plan.h"

#include <algorithm>

namespace hpctl {
namespace {

// What large collectives and copies get of a link's bandwidth.
constexpr double kLinkShare = 0.75;

// A quarter of forward and backward is the forward pass, run again for recomputed layers.
double recompute_factor(const TrainSpec& train) {
  const MemorySpec& memory = train.memory;
  if (memory.activation_checkpointing == Checkpointing::kFull) return 4.0 / 3;
  if (memory.activation_checkpointing == Checkpointing::kOperations) {
    return 1.05;  // limited by memory, not FLOP/s
  }
  if (memory.activation_checkpointing != Checkpointing::kSelective) return 1;
  const int64_t layers = train.model.layers;
  const int64_t again = (layers + memory.every - 1) / memory.every;
  return 1 + static_cast<double>(again) / static_cast<double>(layers) / 3;
}

// Bytes a worker sends in a step: gathers in the compute type, reductions in fp32. A ring sends
// (n-1)/n of the whole per collective.
double bytes_sent(const PlanSetting& s, double parameters, double micro_batches) {
  const double world = s.world_size();
  const double shards = shard_count(s);
  const double ring = (shards - 1) / shards;
  const double c = compute_bytes(s.train);
  const double gathers =
      keeps_parameters(s.train) ? (shards > 1 ? 1 : 0) : 2 * micro_batches;  // forward, backward
  const double reductions = keeps_gradients(s.train) ? 1 : micro_batches;
  double bytes = ring * parameters * (gathers * c + reductions * 4);
  // Replicas add up their shards: twice (n-1)/n of it.
  const double replicas = world / shards;
  bytes += 2 * (replicas - 1) / replicas * parameters / shards * 4;
  return bytes;
}

// The optimizer's state goes up and comes down at the same time, after the backward pass.
double state_bytes_each_way(const PlanSetting& s, const std::vector<Block>& blocks) {
  if (!offloads_optimizer(s.train)) return 0;
  return static_cast<double>(parameter_count(blocks)) / shard_count(s) *
         (4 + 2 * moment_bytes(s.train));
}

}  // namespace

SpeedPlan plan_speed(const PlanSetting& s, const std::vector<Block>& blocks,
                     const GpuModel& device) {
  SpeedPlan plan;
  const BatchSpec& batch = s.train.batch;
  const double world = s.world_size();
  plan.flops = flops_per_token(s.train.model, blocks, s.train.data.seq_len);
  plan.tokens_per_step = static_cast<double>(batch.global * s.train.data.seq_len);
  plan.recompute = recompute_factor(s.train);
  const double counted = plan.tokens_per_step * plan.flops.whole / world;
  plan.compute_low_s = counted * plan.recompute / (device.peak_flops * kUsualMfuHigh);
  plan.compute_high_s = counted * plan.recompute / (device.peak_flops * kUsualMfuLow);
  // Those of the largest share.
  const int64_t share = (batch.global + s.world_size() - 1) / s.world_size();
  const auto micro_batches = static_cast<double>((share + batch.micro - 1) / batch.micro);
  plan.send_bytes = bytes_sent(s, static_cast<double>(parameter_count(blocks)), micro_batches);
  const double link = s.nodes > 1 && shard_count(s) > s.workers_per_node ? device.net_bytes_per_s
                                                                         : device.link_bytes_per_s;
  plan.communication_s = plan.send_bytes / (kLinkShare * link);
  plan.offload_s = state_bytes_each_way(s, blocks) / (kLinkShare * device.host_bytes_per_s);
  double inputs = 0;
  for (const MemoryPart& part : plan_memory(s, blocks).host) {
    if (part.name == std::string_view("activations")) inputs += part.bytes;
  }
  // Down in the forward pass and up in the backward pass, beside computation.
  const double hidden = std::max(
      plan.communication_s, 2 * inputs * micro_batches / (kLinkShare * device.host_bytes_per_s));
  plan.step_low_s = std::max(plan.compute_low_s, hidden) + plan.offload_s;
  plan.step_high_s = std::max(plan.compute_high_s, hidden) + plan.offload_s;
  plan.mfu_low = counted / (plan.step_high_s * device.peak_flops);
  plan.mfu_high = counted / (plan.step_low_s * device.peak_flops);
  return plan;
}

}  // namespace hpctl
