// SPDX-License-Identifier: Apache-2.0
// Optimizer state in host memory while a GPU trains (memory.offload: optimizer, parameters).
//
// The state arena, fp32 parameters and moments, lies in page-locked host memory. A step takes it
// through the device: while one piece is updated there, the next is on its way up and the one
// before on its way down. The device holds only two pieces of it. The arithmetic is Device::adamw
// on the same values, so a step has the same bits as without offload, and a job may switch it on
// and off when it resumes.
//
// The gathers need the weights in the type of computation. With `optimizer` this rank's shards of
// them stay on the device; with `parameters` they are in host memory too. fp32 weights in host
// memory are the arena's own. docs/decisions/1003-offload.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/job/train_spec.h"
#include "common/layout/weight_shards.h"
#include "trainer/device/device.h"
#include "trainer/optim/decay_ranges.h"
#include "trainer/state/state_arena.h"

namespace hpctl {

class OffloadedState {
 public:
  // For an arena of StateArena::create_offloaded with one slot, which its calls are given. The
  // device outlives it.
  OffloadedState(Device& device, const ArenaGeometry& geometry, const TrainSpec& train);

  // The input of the gathers, until the next step() or refresh().
  WeightShards weights(StateArena& arena) const;
  // After the arena was filled: makes the weights of its parameters.
  void refresh(StateArena& arena);
  // One AdamW step. `ranges[b]` are decay_ranges of this rank's shard of block b; gradients[b] are
  // on the device. The arena is complete on return.
  void step(StateArena& arena, const AdamStep& adam,
            const std::vector<std::vector<DecayRange>>& ranges,
            const std::vector<const float*>& gradients);

 private:
  enum class Rounding { kNone, kBf16, kFp16 };
  struct Piece {
    size_t block;
    int64_t shard_begin;  // in the block
    int64_t first;        // in the shard
    int64_t count;
  };
  struct Buffers {
    DeviceArray<float> param;
    DeviceArray<std::byte> exp_avg;
    DeviceArray<std::byte> exp_avg_sq;
    DeviceArray<std::byte> rounded;  // on their way to host memory
  };

  bool weights_are_arenas() const { return on_host_ && rounding_ == Rounding::kNone; }
  size_t weight_bytes() const { return rounding_ == Rounding::kNone ? 4 : 2; }
  std::byte* weight_at(size_t block, int64_t first) const;
  void begin_uploads(StateArena& arena, size_t piece);
  void begin_downloads(StateArena& arena, size_t piece);
  void update(size_t piece, const AdamStep& adam, const std::vector<DecayRange>& ranges,
              const float* gradient);
  void renew_weights(size_t piece);

  Device& device_;
  uint64_t seed_;
  size_t moment_bytes_;
  Rounding rounding_;
  bool on_host_;  // the weights
  std::vector<Piece> pieces_;
  std::array<Buffers, 2> buffers_;      // piece i uses number i % 2
  std::vector<int64_t> weights_begin_;  // elements, per block
  DeviceArray<std::byte> weights_;      // of the device or in host memory; none if the arena's
};

}  // namespace hpctl
