// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/frozen_weights.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "trainer/arch/registry.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/lora_base.h"
#include "trainer/kernels/bf16_rounding.h"

namespace hpctl {

namespace {

Error of_base(Error error) {
  error.message = "workload.train.lora.base: " + error.message;
  return error;
}

}  // namespace

Result<FrozenWeights> FrozenWeights::load(const TrainSpec& train, const Mesh& mesh, int32_t rank,
                                          Device& device) {
  FrozenWeights frozen;
  frozen.blocks_ = model_layout(train.model);
  auto opened = CheckpointLoader::open(train.lora.base);
  if (!opened.ok()) return of_base(opened.error());
  CheckpointLoader& loader = *opened;
  HP_TRY(check_base(loader.manifest(), train));
  frozen.checksum_ = base_checksum(loader.manifest());
  frozen.index_ = mesh.coordinate(rank, kShardDims);
  frozen.count_ = mesh.degree(kShardDims);
  frozen.rounded_ = train.precision != Precision::kFp32;
  std::vector<float> values;
  std::vector<uint16_t> rounded;
  for (size_t b = 0; b < frozen.blocks_.size(); ++b) {
    const int64_t numel = frozen.blocks_[b].numel;
    const ElementRange range = shard_range(numel, frozen.index_, frozen.count_);
    const auto capacity = static_cast<size_t>(shard_capacity(numel, frozen.count_));
    values.assign(capacity, 0.0F);
    if (!range.empty()) {
      const Outcome read =
          loader.load_range(static_cast<int32_t>(b), StateKind::kParam, range,
                            std::span(values).first(static_cast<size_t>(range.size())));
      if (!read.ok()) return of_base(read.error());
    }
    const void* from = values.data();
    if (frozen.rounded_) {
      rounded.resize(capacity);
      const auto round = train.precision == Precision::kBf16 ? round_to_bf16 : round_to_fp16;
      round(values.data(), rounded.data(), static_cast<int64_t>(capacity));
      from = rounded.data();
    }
    const size_t bytes = capacity * (frozen.rounded_ ? sizeof(uint16_t) : sizeof(float));
    frozen.values_.emplace_back(device, bytes);
    device.upload(from, frozen.values_.back().data(), bytes);
  }
  return frozen;
}

WeightShards FrozenWeights::shards() const {
  WeightShards shards;
  for (const auto& values : values_) {
    shards.push_back({.values = values.data(), .rounded = rounded_});
  }
  return shards;
}

}  // namespace hpctl
