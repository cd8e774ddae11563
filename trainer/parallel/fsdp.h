// SPDX-License-Identifier: Apache-2.0
// Fully sharded data parallelism with an explicit schedule: one bucket per block, each rank keeps
// 1/W of every block and all of one or two blocks at a time.
//
//   forward   embed, layers 0..L-1, head: gather, compute, release
//   backward  head (still gathered), then layers L-1..0: gather, compute, release, reduce-scatter;
//             the embedding's gradient needs no weights, so it is reduced without a gather
//
// The autograd graph is cut between blocks (detached inputs, one backward call per block), and all
// collectives are made by the caller's thread between those calls: a failed one unwinds through
// plain returns. The next gather is begun before a block computes and a reduction is finished after
// the next block computed, so both overlap computation; the order of collectives is the same on all
// ranks. Each micro-batch is reduced by itself and added to the fp32 gradient shard: communication
// grows with the number of micro-batches, memory does not
// (docs/decisions/0202-reduce-per-micro.md).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/model/llama.h"
#include "trainer/parallel/block_layout.h"
#include "trainer/parallel/buffer_pool.h"
#include "trainer/parallel/sharded_block.h"

namespace hpctl {

class FullySharded {
 public:
  // `blocks` (llama_layout of the model) and the communicator outlive it.
  FullySharded(const Llama& model, const std::vector<Block>& blocks, Communicator& comm,
               at::ScalarType compute);

  // Zeroes the gradient shards; `shards[b]` is this rank's fp32 shard of block b for the step.
  void begin_step(std::vector<const float*> shards);

  // One micro-batch: tokens and targets [B, T] int64. Adds the gradient of the objective * scale,
  // summed over ranks, to the gradient shards. Returns this rank's sum of the cross entropy.
  Result<double> forward_backward(const at::Tensor& tokens, const at::Tensor& targets,
                                  double scale);

  // Sum over the step's micro-batches; shard_capacity floats for block b.
  const float* gradient(size_t block) const { return gradients_[block].data(); }
  int64_t gradient_elements(size_t block) const {
    return static_cast<int64_t>(gradients_[block].size());
  }

  // Blocks whose full parameters were in memory at the same time, at most, so far.
  size_t peak_gathered_blocks() const { return parameter_buffers_.made(); }

  // Seconds this rank has waited for collectives since begin_step.
  double wait_seconds() const { return wait_seconds_; }

 private:
  Outcome acquire(size_t block);
  Outcome begin_reduce(size_t block);
  Outcome finish_reduce();
  Outcome backward_layers(const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& outputs,
                          at::Tensor& gradient);

  const Llama& model_;
  size_t head_;  // index of the last block
  BufferPool parameter_buffers_;
  BufferPool gradient_buffers_;
  std::vector<std::unique_ptr<ShardedBlock>> blocks_;
  std::vector<const float*> shards_;
  std::vector<std::vector<float>> gradients_;  // fp32 shard per block
  std::vector<float> partial_;                 // reduced shard of the 2nd and later micro-batches
  std::vector<size_t> gather_order_;           // block of each gather in a micro-batch
  size_t next_gather_ = 0;                     // index in gather_order_ of the next acquire()
  ptrdiff_t reducing_ = -1;                    // block whose reduction is under way; -1 = none
  bool first_micro_ = true;
  double wait_seconds_ = 0;
};

}  // namespace hpctl
