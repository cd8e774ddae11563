// SPDX-License-Identifier: Apache-2.0
// Turns every rank's whole gradients into the shard of their sum that the rank's optimizer needs,
// while the backward pass goes on: reduce-scatter in the shard group, then all-reduce among the
// replicas. Sums are fp32 and in one order, so the same inputs give the same bits.
//
// If whole gradients are kept (Sharding::whole_gradients), micro-batches add up in place and each
// block is reduced once a step, during the backward pass of the last one; the shard of the sum is
// then this rank's part of the whole. Otherwise two pool buffers serve all blocks: each micro-batch
// is reduced by itself and added to the shard, and the replicas' reduction runs once a step.
//
// The reduction of a block goes through stages, each a collective:
//   scatter     reduce-scatter in the shard group (none in a group of one)
//   replicas    reduce-scatter of the shard among the replicas, in place (none without replicas)
//   share       all-gather of its parts among the replicas
// Every call moves all blocks in flight one stage on, the oldest first, so an awaited transfer has
// had the backward pass of a block to arrive; the order is the same on all ranks.
#pragma once

#include <deque>
#include <vector>

#include "trainer/comm/mesh_communicators.h"
#include "trainer/parallel/buffer_pool.h"
#include "trainer/parallel/comm_timer.h"

namespace hpctl {

// Memory to which the backward pass of a block adds its gradient.
struct WholeGradient {
  float* values;
  bool unwritten;  // it holds anything, and is to begin as zeros
};

class GradientReducer {
 public:
  // `elements[b]` = numel of block b. The communicators, the device and the clock outlive it.
  GradientReducer(const std::vector<int64_t>& elements, MeshCommunicators& comms,
                  bool whole_gradients, Device& device, CommTimer& clock);

  void begin_step(int micro_batches);
  // For the backward pass of `block` in this micro-batch: the block's elements rounded up to whole
  // shards, unwritten unless earlier micro-batches are in there. Errors come from collectives.
  Result<WholeGradient> whole(size_t block);
  // That pass is done: begins what there is to begin.
  Outcome reduce(size_t block);
  // After a micro-batch's last block: waits for everything.
  Outcome finish_micro_batch();

  // After the last micro-batch: this rank's shard of the sum, shard_elements(block) floats.
  float* shard(size_t block) { return blocks_[block].shard; }
  const float* shard(size_t block) const { return blocks_[block].shard; }
  int64_t shard_elements(size_t block) const { return blocks_[block].shard_elements; }

 private:
  enum class Stage { kScatter, kReplicas, kShare };
  struct BlockMemory {
    int64_t shard_elements = 0;
    DeviceArray<float> kept;  // the whole gradient, or the shard of the sum
    float* shard = nullptr;   // in `kept`
    float* whole = nullptr;   // in `kept`, or a pool buffer while one is used
  };
  struct Reduction {
    size_t block;
    Stage stage;
    CollectivePtr collective;
  };

  void put_under_way(Reduction reduction);
  bool last_micro_batch() const { return micro_batch_ + 1 == micro_batches_; }
  size_t replica_chunk(size_t block) const;
  Outcome advance();
  Outcome begin_replicas(Reduction& reduction);
  void finish_scatter(size_t block);

  MeshCommunicators& comms_;
  Device& device_;
  bool whole_gradients_;
  CommTimer& clock_;
  BufferPool buffers_;
  std::vector<BlockMemory> blocks_;
  DeviceArray<float> partial_;  // reduced shard of the 2nd and later micro-batches
  std::deque<Reduction> under_way_;
  int micro_batch_ = 0;
  int micro_batches_ = 0;
};

}  // namespace hpctl
