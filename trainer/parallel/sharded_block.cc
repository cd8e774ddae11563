// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/sharded_block.h"

#include "common/base/check.h"

namespace hpctl {

size_t ShardedBlock::gather_bytes(const Block& layout, int shards, at::ScalarType type) {
  return static_cast<size_t>(shard_capacity(layout.numel, shards)) * shards * at::elementSize(type);
}

ShardedBlock::ShardedBlock(const Block& layout, Communicator& comm, at::ScalarType type,
                           BufferPool& parameter_buffers, Device& device, bool frozen)
    : comm_(comm),
      layout_(layout),
      type_(type),
      shard_elements_(shard_capacity(layout.numel, comm.world_size())),
      parameter_buffers_(parameter_buffers),
      device_(device) {
  HP_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
  const c10::NoGradGuard no_grad;
  // Views check their bounds when made, so the storage needs an address until they exist.
  alignas(64) static std::byte nowhere;
  flat_ = compat::tensor_over(&nowhere, shard_elements_ * comm.world_size(), type, device.name());
  for (const TensorSlot& slot : layout.tensors) {
    at::Tensor leaf = flat_.narrow(0, slot.offset, slot.numel).view(slot.shape).detach();
    leaf.set_requires_grad(!frozen);
    parameters_.push_back(std::move(leaf));
  }
  point_at(nullptr, 0);
}

ShardedBlock::~ShardedBlock() {
  // Only an error path leaves a collective or a buffer here; the pools own all memory.
  if (flat_.defined()) point_at(nullptr, 0);
}

void ShardedBlock::point_at(void* memory, int64_t elements) {
  compat::set_storage_memory(flat_, memory, static_cast<size_t>(elements) * at::elementSize(type_));
}

Outcome ShardedBlock::begin_gather(const WeightShard& shard) {
  HP_CHECK(state_ == State::kReleased);
  state_ = State::kGathering;
  const bool whole = comm_.world_size() == 1;
  if (whole && !shard.on_host && (shard.rounded || type_ == at::kFloat)) {
    // Only read: leaves are never written, and their gradients lie elsewhere.
    point_at(const_cast<void*>(shard.values), shard_elements_);
    return Ok{};
  }
  HP_TRY_ASSIGN(buffer_, parameter_buffers_.take());
  const size_t chunk_bytes = static_cast<size_t>(shard_elements_) * at::elementSize(type_);
  fill(shard, static_cast<std::byte*>(buffer_) + chunk_bytes * comm_.rank(), chunk_bytes);
  uploading_ = whole && shard.on_host;
  // A collective begins after the work of computation alone.
  if (shard.on_host && !whole) device_.after_uploads();
  HP_TRY_ASSIGN(gather_, comm_.begin_all_gather(buffer_, chunk_bytes));
  return Ok{};
}

// This rank's part of the gathered block.
void ShardedBlock::fill(const WeightShard& shard, std::byte* own, size_t bytes) {
  const auto* values = static_cast<const float*>(shard.values);
  if (shard.on_host) {
    device_.begin_upload(shard.values, own, bytes);
  } else if (shard.rounded || type_ == at::kFloat) {
    // As bytes, which are a multiple of 32 in every type.
    device_.copy(values, reinterpret_cast<float*>(own), static_cast<int64_t>(bytes / 4));
  } else if (type_ == at::kBFloat16) {
    device_.round_to_bf16(values, reinterpret_cast<uint16_t*>(own), shard_elements_);
  } else {
    device_.round_to_fp16(values, reinterpret_cast<uint16_t*>(own), shard_elements_);
  }
}

Outcome ShardedBlock::finish_gather() {
  HP_CHECK(state_ == State::kGathering);
  if (buffer_ != nullptr) {
    HP_TRY(gather_->wait());
    gather_.reset();
    if (uploading_) device_.after_uploads();
    point_at(buffer_, flat_.numel());
  }
  state_ = State::kGathered;
  return Ok{};
}

void ShardedBlock::release() {
  HP_CHECK(state_ == State::kGathered);
  state_ = State::kReleased;
  point_at(nullptr, 0);
  if (buffer_ != nullptr) parameter_buffers_.give_back(buffer_);
  buffer_ = nullptr;
}

std::vector<UnwrittenPart> ShardedBlock::left_to_products(const std::vector<bool>& products) const {
  std::vector<UnwrittenPart> parts;
  for (size_t i = 0; i < products.size(); ++i) {
    if (products[i]) parts.push_back({layout_.tensors[i].offset, layout_.tensors[i].numel});
  }
  return parts;
}

void ShardedBlock::attach_gradient(const WholeGradient& whole, const std::vector<bool>& products) {
  HP_CHECK(products.empty() || products.size() == parameters_.size());
  const c10::NoGradGuard no_grad;
  const int64_t elements = shard_elements_ * comm_.world_size();
  const std::vector<UnwrittenPart> left =
      whole.unwritten ? left_to_products(products) : std::vector<UnwrittenPart>();
  // Between those, and behind the last.
  int64_t zeros_from = whole.unwritten ? 0 : elements;
  for (const UnwrittenPart& part : left) {
    if (part.first > zeros_from) device_.zero(whole.values + zeros_from, part.first - zeros_from);
    zeros_from = part.first + part.count;
  }
  if (elements > zeros_from) device_.zero(whole.values + zeros_from, elements - zeros_from);
  gradient_ = gradient_over(whole.values, elements, device_.name(), left);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const TensorSlot& slot = layout_.tensors[i];
    parameters_[i].mutable_grad() = gradient_.narrow(0, slot.offset, slot.numel).view(slot.shape);
  }
}

void ShardedBlock::detach_gradient() {
  if (!gradient_.defined()) return;
  for (const UnwrittenPart& part : unwritten_parts(gradient_)) {
    device_.zero(gradient_.data_ptr<float>() + part.first, part.count);
  }
  gradient_ = at::Tensor();
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
}

}  // namespace hpctl
