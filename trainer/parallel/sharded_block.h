// SPDX-License-Identifier: Apache-2.0
// One block of a fully sharded model on one rank (the unit of FSDP).
//
// The leaves of autograd are views at the layout's offsets of one flat tensor. Gathering takes a
// buffer from a pool, receives all ranks' shards at their places in it and points the tensor's
// storage at it: nothing is copied in or out. Releasing gives the buffer back and leaves the
// storage empty, although autograd keeps aliases of it for the backward pass; the next gather fills
// it again with the same bytes. Tensors are never written through ATen in between, so autograd's
// version counters see nothing to complain about.
//
// Gradients gather in one flat fp32 buffer: each leaf's .grad is a view of it (fp32 also for bf16
// leaves), autograd adds in place, and one reduce-scatter gives every rank its shard of the sum.
//
// Life of a block in a step: (begin_gather finish_gather [use] release)+ with, around the backward
// use, attach_gradient ... begin_reduce finish_reduce. Out of order is an HP_CHECK.
#pragma once

#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/parallel/block_layout.h"
#include "trainer/parallel/buffer_pool.h"

namespace hpctl {

class ShardedBlock {
 public:
  // Bytes a pool buffer must have for this block.
  static size_t gather_bytes(const Block& layout, int world_size, at::ScalarType type);

  // `type` is what parameters are gathered and used in. The pools and the communicator outlive it.
  ShardedBlock(const Block& layout, Communicator& comm, at::ScalarType type,
               BufferPool& parameter_buffers, BufferPool& gradient_buffers);
  ~ShardedBlock();
  ShardedBlock(const ShardedBlock&) = delete;
  ShardedBlock& operator=(const ShardedBlock&) = delete;

  int64_t shard_elements() const { return shard_elements_; }

  // `shard` holds shard_elements() fp32 values; read before this returns.
  Outcome begin_gather(const float* shard);
  Outcome finish_gather();
  // Valid to use between finish_gather and release, in the order of the layout's tensors.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  void release();

  void attach_gradient();
  // Detaches the gradients and starts their reduction into `sum` (shard_elements() floats).
  Outcome begin_reduce(float* sum);
  Outcome finish_reduce();

 private:
  Communicator& comm_;
  const Block& layout_;
  at::ScalarType type_;
  int64_t shard_elements_;
  BufferPool& parameter_buffers_;
  BufferPool& gradient_buffers_;
  at::Tensor flat_;                     // all shards; storage empty unless gathered
  std::vector<at::Tensor> parameters_;  // leaves: views of flat_
  void* gathered_ = nullptr;            // buffer, from begin_gather to release
  float* gradient_ = nullptr;           // buffer, from attach_gradient to finish_reduce
  CollectivePtr gather_;
  CollectivePtr reduce_;
};

}  // namespace hpctl
