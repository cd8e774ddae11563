// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/gradient_reducer.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/layout/block_layout.h"

namespace hpctl {

namespace {

int64_t largest(const std::vector<int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

}  // namespace

GradientReducer::GradientReducer(const std::vector<int64_t>& elements, MeshCommunicators& comms,
                                 bool whole_gradients, Device& device, CommTimer& clock)
    : comms_(comms),
      device_(device),
      whole_gradients_(whole_gradients),
      clock_(clock),
      buffers_(static_cast<size_t>(shard_capacity(largest(elements), comms.shard().world_size())) *
                   comms.shard().world_size() * sizeof(float),
               comms.shard(), device),
      blocks_(elements.size()) {
  const int shards = comms.shard().world_size();
  const int replicas = comms.replicate().world_size();
  // In place among replicas, the padding of a shard would reach into its neighbour.
  HP_CHECK(!whole_gradients || shards == 1 || replicas == 1);
  for (size_t b = 0; b < elements.size(); ++b) {
    BlockMemory& block = blocks_[b];
    block.shard_elements = shard_capacity(elements[b], shards);
    const int64_t padded = static_cast<int64_t>(replica_chunk(b)) * replicas;
    const int64_t kept = whole_gradients ? std::max(padded, block.shard_elements * shards) : padded;
    block.kept = DeviceArray<float>(device, static_cast<size_t>(kept));
    // The memory after the gradient takes part in the collectives.
    device.zero(block.kept.data(), kept);
    block.shard = block.kept.data();
    if (!whole_gradients) continue;
    block.whole = block.kept.data();
    block.shard += block.shard_elements * comms.shard().rank();
  }
  if (whole_gradients) return;
  partial_ =
      DeviceArray<float>(device, static_cast<size_t>(shard_capacity(largest(elements), shards)));
}

// The part of a shard that each replica adds up.
size_t GradientReducer::replica_chunk(size_t block) const {
  return static_cast<size_t>(
      shard_capacity(blocks_[block].shard_elements, comms_.replicate().world_size()));
}

void GradientReducer::begin_step(int micro_batches) {
  HP_CHECK(micro_batches >= 1 && under_way_.empty());
  micro_batches_ = micro_batches;
  micro_batch_ = 0;
}

Result<WholeGradient> GradientReducer::whole(size_t block) {
  BlockMemory& memory = blocks_[block];
  if (!whole_gradients_) {
    HP_CHECK(memory.whole == nullptr);
    HP_TRY_ASSIGN(void* const buffer, buffers_.take());
    memory.whole = static_cast<float*>(buffer);
  }
  return WholeGradient{memory.whole, !whole_gradients_ || micro_batch_ == 0};
}

Outcome GradientReducer::reduce(size_t block) {
  HP_TRY(advance());
  if (whole_gradients_ && !last_micro_batch()) return Ok{};
  BlockMemory& memory = blocks_[block];
  Reduction reduction = {.block = block, .stage = Stage::kScatter, .collective = nullptr};
  if (comms_.shard().world_size() > 1) {
    float* sum = whole_gradients_ || micro_batch_ == 0 ? memory.shard : partial_.data();
    HP_TRY_ASSIGN(reduction.collective,
                  comms_.shard().begin_reduce_scatter(
                      memory.whole, static_cast<size_t>(memory.shard_elements), sum));
    put_under_way(std::move(reduction));
    return Ok{};
  }
  return begin_replicas(reduction);
}

Outcome GradientReducer::finish_micro_batch() {
  while (!under_way_.empty()) HP_TRY(advance());
  ++micro_batch_;
  return Ok{};
}

void GradientReducer::put_under_way(Reduction reduction) {
  under_way_.push_back(std::move(reduction));
  clock_.begun();
}

// Moves every reduction one stage on.
Outcome GradientReducer::advance() {
  for (size_t count = under_way_.size(); count > 0; --count) {
    Reduction reduction = std::move(under_way_.front());
    under_way_.pop_front();
    HP_TRY(reduction.collective->wait());
    clock_.waited_for();
    reduction.collective.reset();
    if (reduction.stage == Stage::kScatter) {
      finish_scatter(reduction.block);
      HP_TRY(begin_replicas(reduction));
    } else if (reduction.stage == Stage::kReplicas) {
      reduction.stage = Stage::kShare;
      HP_TRY_ASSIGN(reduction.collective, comms_.replicate().begin_all_gather(
                                              blocks_[reduction.block].shard,
                                              replica_chunk(reduction.block) * sizeof(float)));
      put_under_way(std::move(reduction));
    }
  }
  return Ok{};
}

void GradientReducer::finish_scatter(size_t block) {
  if (whole_gradients_) return;
  BlockMemory& memory = blocks_[block];
  buffers_.give_back(memory.whole);
  memory.whole = nullptr;
  if (micro_batch_ == 0) return;
  device_.add(partial_.data(), memory.shard, memory.shard_elements);
}

Outcome GradientReducer::begin_replicas(Reduction& reduction) {
  if (!last_micro_batch() || comms_.replicate().world_size() == 1) return Ok{};
  float* shard = blocks_[reduction.block].shard;
  const size_t chunk = replica_chunk(reduction.block);
  reduction.stage = Stage::kReplicas;
  HP_TRY_ASSIGN(reduction.collective, comms_.replicate().begin_reduce_scatter(
                                          shard, chunk, shard + chunk * comms_.replicate().rank()));
  put_under_way(std::move(reduction));
  return Ok{};
}

}  // namespace hpctl
