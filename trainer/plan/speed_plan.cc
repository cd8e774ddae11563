// SPDX-License-Identifier: Apache-2.0
#include "trainer/plan/speed_plan.h"

#include <algorithm>

#include "common/layout/memory_savings.h"
#include "common/layout/sharding.h"
#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

// The share of a link's bandwidth for large collectives and copies. AWS measured two nodes with
// nccl-tests' all_reduce, 1 to 16 GiB: p5 437 to 487 GB/s of busbw, p4de 76.8 to 78.3. This share
// of one ring gives 300 and 37.5: NVSwitch adds up on the way, and a tree crosses between two nodes
// half as often.
constexpr double kLinkShare = 0.75;

// The share of a forward pass's time that `operations` repeats: limited by memory, not by FLOP/s.
constexpr double kCheapShare = 0.15;

// A GPU's share of a ring over GPUs of several nodes, of which `rings` leave each node side by
// side: a ring passes the node's border once each way, and shares the node's adapters evenly.
double ring_bytes_per_s(const PlanSetting& s, const GpuModel& device, int32_t rings) {
  const double border = device.net_bytes_per_s * s.workers_per_node / rings;
  return std::min(device.link_bytes_per_s, border);
}

struct Communication {
  double bytes = 0;  // that a worker sends in a step
  double seconds = 0;
};

// Gathers in the compute type, reductions in fp32, among the workers that share one copy of the
// state; then replicas add up their shards. Frozen parameters have no reduction. They are gathered
// like trained ones or, if those are kept for a step, once before all steps. A ring sends (n-1)/n
// of the whole per collective.
Communication plan_communication(const PlanSetting& s, const GpuModel& device, double trained,
                                 double micro_batches) {
  const double frozen =
      s.train.lora.on() ? static_cast<double>(parameter_count(model_layout(s.train.model))) : 0;
  const int32_t shards = shard_count(s);
  const double replicas = static_cast<double>(s.world_size()) / shards;
  const bool keeps = keeps_parameters(s.train);
  const double gathers = keeps ? (shards > 1 ? 1 : 0) : 2 * micro_batches;  // forward, backward
  const double gathers_of_frozen = keeps ? 0 : gathers;
  const double reductions = keeps_gradients(s.train) ? 1 : micro_batches;
  const double within = (shards - 1.0) / shards *
                        ((trained * gathers + frozen * gathers_of_frozen) * compute_bytes(s.train) +
                         trained * reductions * 4);
  const double between = 2 * (replicas - 1) / replicas * trained / shards * 4;
  // Replicas' rings: one for each shard of a node.
  const double within_rate =
      shards > s.workers_per_node ? ring_bytes_per_s(s, device, 1) : device.link_bytes_per_s;
  const double between_rate =
      s.nodes > 1 ? ring_bytes_per_s(s, device, std::min(shards, s.workers_per_node))
                  : device.link_bytes_per_s;
  return {within + between, (within / within_rate + between / between_rate) / kLinkShare};
}

// The optimizer's state goes up and comes down at the same time, after the backward pass.
double state_bytes_each_way(const PlanSetting& s, const std::vector<Block>& blocks) {
  if (!offloads_optimizer(s.train)) return 0;
  return static_cast<double>(parameter_count(blocks)) / shard_count(s) *
         (4 + 2 * moment_bytes(s.train));
}

}  // namespace

// The forward pass runs again for recomputed layers: a third of what is counted or, beside frozen
// weights, which have no gradients, about half.
double recompute_factor(const TrainSpec& train, const FlopsPerToken& flops) {
  const MemorySpec& memory = train.memory;
  const double forward = flops.forward / flops.whole;
  if (memory.activation_checkpointing == Checkpointing::kFull) return 1 + forward;
  if (memory.activation_checkpointing == Checkpointing::kOperations) {
    return 1 + kCheapShare * forward;
  }
  if (memory.activation_checkpointing != Checkpointing::kSelective) return 1;
  const int64_t layers = train.model.layers;
  const int64_t again = (layers + memory.every - 1) / memory.every;
  return 1 + static_cast<double>(again) / static_cast<double>(layers) * forward;
}

int64_t passes_per_step(const PlanSetting& s) {
  const int64_t world = s.world_size();
  const int64_t share = (s.train.batch.global + world - 1) / world;
  return (share + s.train.batch.micro - 1) / s.train.batch.micro;
}

std::vector<int64_t> even_micros(const TrainSpec& train, int64_t world_size) {
  if (train.batch.global % world_size != 0) return {1};
  const int64_t share = train.batch.global / world_size;
  const int64_t evaluated =
      train.validation.every_steps > 0 ? train.validation.sequences : int64_t{0};
  std::vector<int64_t> found;
  const auto add = [&](int64_t micro) {
    if (micro <= kMaxMicro && evaluated % micro == 0) found.push_back(micro);
  };
  for (int64_t d = 1; d * d <= share; ++d) {
    if (share % d != 0) continue;
    add(d);
    if (d != share / d) add(share / d);
  }
  std::sort(found.begin(), found.end());
  return found;
}

SpeedPlan plan_speed(const PlanSetting& s, const std::vector<Block>& blocks,
                     const GpuModel& device) {
  SpeedPlan plan;
  const BatchSpec& batch = s.train.batch;
  const double world = s.world_size();
  plan.flops = flops_per_token(s.train.model, blocks, s.train.data.seq_len, s.train.lora);
  plan.tokens_per_step = static_cast<double>(batch.global * s.train.data.seq_len);
  plan.recompute = recompute_factor(s.train, plan.flops);
  const double counted = plan.tokens_per_step * plan.flops.whole / world;
  const double peak = compute_bytes(s.train) < 4 ? device.peak_flops : device.fp32_flops;
  plan.compute_low_s = counted * plan.recompute / (peak * kUsualMfuHigh);
  plan.compute_high_s = counted * plan.recompute / (peak * kUsualMfuLow);
  const auto passes = static_cast<double>(passes_per_step(s));
  const Communication communication =
      plan_communication(s, device, static_cast<double>(parameter_count(blocks)), passes);
  plan.send_bytes = communication.bytes;
  plan.communication_s = communication.seconds;
  plan.offload_s = state_bytes_each_way(s, blocks) / (kLinkShare * device.host_bytes_per_s);
  double inputs = 0;
  for (const MemoryPart& part : plan_memory(s, blocks).host) {
    if (part.name == std::string_view("activations")) inputs += part.bytes;
  }
  // Down in the forward pass and up in the backward pass, beside computation.
  const double hidden =
      std::max(plan.communication_s, 2 * inputs * passes / (kLinkShare * device.host_bytes_per_s));
  plan.step_low_s = std::max(plan.compute_low_s, hidden) + plan.offload_s;
  plan.step_high_s = std::max(plan.compute_high_s, hidden) + plan.offload_s;
  plan.mfu_low = counted / (plan.step_high_s * device.peak_flops);
  plan.mfu_high = counted / (plan.step_low_s * device.peak_flops);
  return plan;
}

}  // namespace hpctl
