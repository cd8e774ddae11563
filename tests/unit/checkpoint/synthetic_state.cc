// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/checkpoint/synthetic_state.h"

#include <utility>

#include "common/base/rng.h"
#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

std::vector<std::vector<float>> buffers_of(const SyntheticSave& save,
                                           const std::vector<Block>& blocks, int32_t rank,
                                           std::vector<ShardPart>& parts) {
  std::vector<std::vector<float>> buffers;
  for (const StateKind kind : kStateKinds) {
    for (size_t b = 0; b < blocks.size(); ++b) {
      ShardPart part;
      part.block = static_cast<int32_t>(b);
      part.kind = kind;
      part.range = shard_range(blocks[b].numel, rank, save.world_size);
      std::vector<float> values;
      for (int64_t i = part.range.begin; i < part.range.end; ++i) {
        values.push_back(synthetic_value(blocks, part.block, kind, i, save.salt));
      }
      buffers.push_back(std::move(values));
      part.values = buffers.back();
      parts.push_back(part);
    }
  }
  return buffers;
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

Result<Receipt> write_synthetic_shard(const SyntheticSave& save, int32_t rank) {
  const auto blocks = model_layout(synthetic_model());
  ShardJob job;
  job.checkpoint_dir = save.checkpoint_dir;
  job.checkpoint = save.ref;
  job.rank = rank;
  job.world_size = save.world_size;
  job.blocks = &blocks;
  const auto buffers = buffers_of(save, blocks, rank, job.parts);
  return write_shard(job);
}

Outcome save_synthetic(const SyntheticSave& save) {
  std::vector<Receipt> receipts;
  for (int32_t rank = 0; rank < save.world_size; ++rank) {
    HP_TRY_ASSIGN(const Receipt receipt, write_synthetic_shard(save, rank));
    HP_TRY_ASSIGN(Receipt received, decode_receipt(encode_receipt(receipt)));
    receipts.push_back(std::move(received));
  }
  return commit_checkpoint(save.checkpoint_dir, synthetic_manifest(save), receipts);
}

}  // namespace hpctl
