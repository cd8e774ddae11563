// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/sharded_block.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "trainer/parallel/bf16_rounding.h"

namespace hpctl {

size_t ShardedBlock::gather_bytes(const Block& layout, int world_size, at::ScalarType type) {
  return static_cast<size_t>(shard_capacity(layout.numel, world_size)) * world_size *
         at::elementSize(type);
}

ShardedBlock::ShardedBlock(const Block& layout, Communicator& comm, at::ScalarType type,
                           BufferPool& parameter_buffers, BufferPool& gradient_buffers)
    : comm_(comm),
      layout_(layout),
      type_(type),
      shard_elements_(shard_capacity(layout.numel, comm.world_size())),
      parameter_buffers_(parameter_buffers),
      gradient_buffers_(gradient_buffers) {
  HP_CHECK(type == at::kFloat || type == at::kBFloat16);
  const at::NoGradGuard no_grad;
  // Views check their bounds when made, so the storage needs memory until they exist.
  void* memory = parameter_buffers_.take();
  flat_ = at::from_blob(
      memory, {shard_elements_ * comm.world_size()}, [](void*) {}, at::TensorOptions(type));
  for (const TensorSlot& slot : layout.tensors) {
    at::Tensor leaf = flat_.narrow(0, slot.offset, slot.numel).view(slot.shape).detach();
    leaf.set_requires_grad(true);
    parameters_.push_back(std::move(leaf));
  }
  compat::set_storage_memory(flat_, nullptr, 0);
  parameter_buffers_.give_back(memory);
}

ShardedBlock::~ShardedBlock() {
  // Only an error path leaves a collective or a buffer here; the pools own all memory.
  if (flat_.defined()) compat::set_storage_memory(flat_, nullptr, 0);
}

Outcome ShardedBlock::begin_gather(const float* shard) {
  HP_CHECK(gathered_ == nullptr);
  gathered_ = parameter_buffers_.take();
  const size_t chunk_bytes = static_cast<size_t>(shard_elements_) * at::elementSize(type_);
  std::byte* own = static_cast<std::byte*>(gathered_) + chunk_bytes * comm_.rank();
  if (type_ == at::kBFloat16) {
    round_to_bf16(shard, reinterpret_cast<uint16_t*>(own), shard_elements_);
  } else {
    std::memcpy(own, shard, chunk_bytes);
  }
  HP_TRY_ASSIGN(gather_, comm_.begin_all_gather(gathered_, chunk_bytes));
  return Ok{};
}

Outcome ShardedBlock::finish_gather() {
  HP_CHECK(gather_ != nullptr);
  HP_TRY(gather_->wait());
  gather_.reset();
  compat::set_storage_memory(flat_, gathered_,
                             static_cast<size_t>(flat_.numel()) * at::elementSize(type_));
  return Ok{};
}

void ShardedBlock::release() {
  HP_CHECK(gathered_ != nullptr && gather_ == nullptr);
  compat::set_storage_memory(flat_, nullptr, 0);
  parameter_buffers_.give_back(gathered_);
  gathered_ = nullptr;
}

void ShardedBlock::attach_gradient() {
  HP_CHECK(gradient_ == nullptr);
  const int64_t elements = shard_elements_ * comm_.world_size();
  gradient_ = static_cast<float*>(gradient_buffers_.take());
  std::fill(gradient_, gradient_ + elements, 0.0F);
  const at::NoGradGuard no_grad;
  const at::Tensor flat = at::from_blob(
      gradient_, {elements}, [](void*) {}, at::TensorOptions(at::kFloat));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const TensorSlot& slot = layout_.tensors[i];
    parameters_[i].mutable_grad() = flat.narrow(0, slot.offset, slot.numel).view(slot.shape);
  }
}

Outcome ShardedBlock::begin_reduce(float* sum) {
  HP_CHECK(gradient_ != nullptr && reduce_ == nullptr);
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
  HP_TRY_ASSIGN(reduce_,
                comm_.begin_reduce_scatter(gradient_, static_cast<size_t>(shard_elements_), sum));
  return Ok{};
}

Outcome ShardedBlock::finish_reduce() {
  HP_CHECK(reduce_ != nullptr);
  HP_TRY(reduce_->wait());
  reduce_.reset();
  gradient_buffers_.give_back(gradient_);
  gradient_ = nullptr;
  return Ok{};
}

}  // namespace hpctl
