// SPDX-License-Identifier: Apache-2.0
// One block of a sharded model on one rank (the unit of FSDP).
//
// The leaves of autograd are views at the layout's offsets of one flat tensor. Gathering takes a
// buffer from a pool, receives all ranks' shards at their places in it and points the tensor's
// storage at it: nothing is copied in or out. Releasing gives the buffer back and leaves the
// storage empty, although autograd keeps aliases of it for the backward pass; the next gather fills
// it again with the same bytes. Tensors are never written through ATen in between, so autograd's
// version counters see nothing to complain about. A shard that is the whole block, in the type of
// computation, is used where it lies. One in host memory (memory.offload) comes from there: before
// the gather begins where there are peers, else beside the computation of the block before.
//
// Gradients gather in one flat fp32 buffer: each leaf's .grad is a view of it (fp32 also for bf16
// leaves) and autograd adds in place. A buffer that is unwritten begins as zeros, but for the
// tensors to which a product writes first (trainer/arch/gradient_memory.h).
//
// Life of a block: (begin_gather finish_gather [use] release)+ and, around each backward use,
// attach_gradient ... detach_gradient. Out of order is an HP_CHECK.
#pragma once

#include <vector>

#include "common/layout/block_layout.h"
#include "common/layout/weight_shards.h"
#include "trainer/arch/gradient_memory.h"
#include "trainer/comm/communicator.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/parallel/buffer_pool.h"
#include "trainer/parallel/gradient_reducer.h"

namespace hpctl {

class ShardedBlock {
 public:
  // Bytes a pool buffer must have for this block.
  static size_t gather_bytes(const Block& layout, int shards, at::ScalarType type);

  // `type` is the type in which parameters are gathered and used; `comm` belongs to the shard
  // group. A frozen block has no gradients. The pool, which is of `device`, the layout, the
  // communicator and the device outlive it.
  ShardedBlock(const Block& layout, Communicator& comm, at::ScalarType type,
               BufferPool& parameter_buffers, Device& device = host_device(), bool frozen = false);
  ~ShardedBlock();
  ShardedBlock(const ShardedBlock&) = delete;
  ShardedBlock& operator=(const ShardedBlock&) = delete;

  int64_t shard_elements() const { return shard_elements_; }

  // `shard` holds shard_elements() values, which stay as they are until release.
  Outcome begin_gather(const WeightShard& shard);
  Outcome finish_gather();
  // Valid to use between finish_gather and release, in the order of the layout's tensors.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  void release();

  bool gathering() const { return state_ == State::kGathering; }
  bool gathered() const { return state_ == State::kGathered; }

  // `whole` holds shard_elements() * shards floats, to which backward adds. `products[i]`: a
  // product is the first to add to tensor i of the layout; empty: to none.
  void attach_gradient(const WholeGradient& whole, const std::vector<bool>& products);
  // What is still unwritten becomes zeros.
  void detach_gradient();

 private:
  enum class State { kReleased, kGathering, kGathered };

  void point_at(void* memory, int64_t elements);
  void fill(const WeightShard& shard, std::byte* own, size_t bytes);
  std::vector<UnwrittenPart> left_to_products(const std::vector<bool>& products) const;

  Communicator& comm_;
  const Block& layout_;
  at::ScalarType type_;
  int64_t shard_elements_;
  BufferPool& parameter_buffers_;
  Device& device_;
  at::Tensor flat_;                     // all shards; storage empty unless gathered
  std::vector<at::Tensor> parameters_;  // leaves: views of flat_
  at::Tensor gradient_;                 // what attach_gradient() was given
  State state_ = State::kReleased;
  void* buffer_ = nullptr;  // of the pool, from begin_gather to release; null = shard used in place
  CollectivePtr gather_;
  bool uploading_ = false;  // the gather is a copy from host memory
};

}  // namespace hpctl
