// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/checkpoint/synthetic_state.h"

#include <algorithm>
#include <utility>

#include "common/base/rng.h"
#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

// Elements of the block in the order of the part.
std::vector<int64_t> elements_of(const Block& block, const ShardPart& part) {
  std::vector<int64_t> elements;
  if (part.slice == nullptr) {
    for (int64_t i = part.range.begin; i < part.range.end; ++i) elements.push_back(i);
    return elements;
  }
  // By the definition: one element after another, the last dimension fastest.
  const TensorSlot& tensor = block.tensors[static_cast<size_t>(part.slice->tensor)];
  std::vector<int64_t> at = part.slice->offsets;
  while (static_cast<int64_t>(elements.size()) < part.range.end) {
    int64_t place = 0;
    for (size_t d = 0; d < at.size(); ++d) place = place * tensor.shape[d] + at[d];
    elements.push_back(tensor.offset + place);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < part.slice->offsets[d] + part.slice->lengths[d]) break;
      at[d] = part.slice->offsets[d];
    }
  }
  return elements;
}

// What rank `rank` writes of one kind, without values.
std::vector<ShardPart> parts_of(const SyntheticSave& save, const std::vector<Block>& blocks,
                                int32_t rank, const std::vector<TensorSlice>& slices) {
  std::vector<ShardPart> parts;
  size_t next = 0;
  for (size_t b = 0; b < blocks.size(); ++b) {
    const auto block = static_cast<int32_t>(b);
    if (next == slices.size() || slices[next].block != block) {
      const ElementRange range = shard_range(blocks[b].numel, rank, save.world_size);
      parts.push_back({block, StateKind::kParam, range, {}});
    }
    for (; next < slices.size() && slices[next].block == block; ++next) {
      const auto owner = mix64(save.cut + next) % static_cast<uint64_t>(save.world_size);
      if (owner != static_cast<uint64_t>(rank)) continue;
      parts.push_back(
          {block, StateKind::kParam, {0, hpctl::elements_of(slices[next])}, {}, &slices[next]});
    }
  }
  return parts;
}

std::vector<std::vector<float>> buffers_of(const SyntheticSave& save,
                                           const std::vector<Block>& blocks, int32_t rank,
                                           const std::vector<TensorSlice>& slices,
                                           std::vector<ShardPart>& parts) {
  std::vector<std::vector<float>> buffers;
  for (const StateKind kind : kStateKinds) {
    for (ShardPart part : parts_of(save, blocks, rank, slices)) {
      part.kind = kind;
      std::vector<float> values;
      for (const int64_t i : elements_of(blocks[static_cast<size_t>(part.block)], part)) {
        values.push_back(synthetic_value(blocks, part.block, kind, i, save.salt));
      }
      buffers.push_back(std::move(values));
      part.values = buffers.back();
      parts.push_back(part);
    }
  }
  return buffers;
}

// Cuts `box` in two along a dimension, again and again, or leaves it.
void cut_box(TensorSlice box, Rng& random, std::vector<TensorSlice>& boxes) {
  const size_t dim = box.lengths.empty() ? 0 : random.below(box.lengths.size());
  if (box.lengths.empty() || box.lengths[dim] == 1 || random.below(4) == 0) {
    boxes.push_back(std::move(box));
    return;
  }
  TensorSlice rest = box;
  const auto at =
      1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(box.lengths[dim] - 1)));
  box.lengths[dim] = at;
  rest.offsets[dim] += at;
  rest.lengths[dim] -= at;
  cut_box(std::move(box), random, boxes);
  cut_box(std::move(rest), random, boxes);
}

}  // namespace

ModelSpec synthetic_model() {
  ModelSpec model;
  model.dim = 12;
  model.layers = 2;
  model.heads = 2;
  model.kv_heads = 1;
  model.ffn = 20;
  model.vocab = 37;
  return model;
}

float synthetic_value(const std::vector<Block>& blocks, int32_t block, StateKind kind,
                      int64_t element, uint64_t salt) {
  for (const TensorSlot& tensor : blocks[static_cast<size_t>(block)].tensors) {
    if (element < tensor.offset || element >= tensor.offset + tensor.numel) continue;
    const uint64_t place = (static_cast<uint64_t>(block) << 40) ^
                           (static_cast<uint64_t>(kind) << 36) ^ static_cast<uint64_t>(element);
    return static_cast<float>(mix64(place + salt * 0x9e3779b97f4a7c15ULL) >> 40);
  }
  return 0.0F;
}

Manifest synthetic_manifest(const SyntheticSave& save) {
  Manifest m;
  m.step = save.ref.step;
  m.generation = save.ref.generation;
  m.parent = save.parent;
  m.world_size = save.world_size;
  m.sample_cursor = save.ref.step * 8;
  m.skipped = save.skipped;
  m.data = {"0123abcd", 100000, 32};
  m.seed = ~uint64_t{0};
  m.model = synthetic_model();
  m.environment = {{"blas", "test \"quoted\" \xff"}};
  m.blocks = model_layout(m.model);
  return m;
}

std::vector<TensorSlice> random_slices(const std::vector<Block>& blocks, uint64_t cut) {
  std::vector<TensorSlice> slices;
  Rng random(cut);
  for (size_t b = 0; cut != 0 && b < blocks.size(); ++b) {
    if (random.below(4) == 0) continue;
    for (size_t t = 0; t < blocks[b].tensors.size(); ++t) {
      const std::vector<int64_t>& shape = blocks[b].tensors[t].shape;
      cut_box({static_cast<int32_t>(b), static_cast<int32_t>(t),
               std::vector<int64_t>(shape.size(), 0), shape},
              random, slices);
    }
  }
  std::sort(slices.begin(), slices.end());
  return slices;
}

Result<Receipt> write_synthetic_shard(const SyntheticSave& save, int32_t rank,
                                      const std::vector<Block>& blocks) {
  ShardJob job;
  job.checkpoint_dir = save.checkpoint_dir;
  job.checkpoint = save.ref;
  job.rank = rank;
  job.world_size = save.world_size;
  job.blocks = &blocks;
  const std::vector<TensorSlice> slices = random_slices(blocks, save.cut);
  const auto buffers = buffers_of(save, blocks, rank, slices, job.parts);
  return write_shard(job);
}

Result<Receipt> write_synthetic_shard(const SyntheticSave& save, int32_t rank) {
  return write_synthetic_shard(save, rank, model_layout(synthetic_model()));
}

Outcome save_synthetic(const SyntheticSave& save, Manifest base) {
  std::vector<Receipt> receipts;
  for (int32_t rank = 0; rank < save.world_size; ++rank) {
    HP_TRY_ASSIGN(const Receipt receipt, write_synthetic_shard(save, rank, base.blocks));
    HP_TRY_ASSIGN(Receipt received, decode_receipt(encode_receipt(receipt)));
    receipts.push_back(std::move(received));
  }
  return commit_checkpoint(save.checkpoint_dir, std::move(base), receipts);
}

Outcome save_synthetic(const SyntheticSave& save) {
  return save_synthetic(save, synthetic_manifest(save));
}

}  // namespace hpctl
