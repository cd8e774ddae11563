// SPDX-License-Identifier: Apache-2.0
// State in bf16 (optimizer.moments, optimizer.master). Its rounding depends on the job and the
// step. It does not depend on the number of ranks, or on which rank has an element.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tests/unit/trainer/stepped_state.h"
#include "trainer/kernels/bf16.h"
#include "trainer/state/training_state.h"

namespace hpctl {
namespace {

using test::make_state;

Workload narrow_workload(int world_size, Strategy strategy, StateType master) {
  Workload workload;
  workload.generation = 1;
  workload.world_size = world_size;
  workload.train.model = *model_preset("tiny");
  workload.train.strategy = strategy;
  workload.train.shard_group = strategy == Strategy::kHybrid ? 2 : 0;
  workload.train.optimizer.moments = StateType::kBf16;
  workload.train.optimizer.master = master;
  workload.train.seed = 3;
  return workload;
}

// Five steps. Every element has another gradient.
void take_steps(TrainingState& state) {
  std::vector<std::vector<float>> gradients;
  std::vector<const float*> pointers;
  for (size_t b = 0; b < state.blocks().size(); ++b) {
    const ElementRange shard = state.padded_shard(b);
    std::vector<float>& values = gradients.emplace_back();
    for (int64_t i = shard.begin; i < shard.end; ++i) {
      const bool padding = i >= state.blocks()[b].numel;
      values.push_back(padding ? 0 : std::sin(static_cast<float>(i + 1) * 0.7F));
    }
  }
  for (const std::vector<float>& values : gradients) pointers.push_back(values.data());
  for (uint64_t step = 1; step <= 5; ++step) {
    state.apply(AdamStep({}, step, 1e-3, 1.0), pointers, 0);
  }
}

// Elements of all blocks, without padding, kind by kind, as they are kept: of each rank's part.
std::vector<std::vector<std::byte>> trained_by(Workload workload) {
  std::vector<std::vector<std::byte>> whole;
  for (workload.rank = 0; workload.rank < workload.world_size; ++workload.rank) {
    TrainingState state = make_state(workload);
    take_steps(state);
    size_t part = 0;
    for (const StateKind kind : kStateKinds) {
      for (size_t b = 0; b < state.blocks().size(); ++b, ++part) {
        const auto each = static_cast<int64_t>(state.element_bytes(kind));
        if (whole.size() <= part) {
          whole.emplace_back(static_cast<size_t>(state.blocks()[b].numel * each));
        }
        const ElementRange own = intersect(state.padded_shard(b), {0, state.blocks()[b].numel});
        if (own.empty()) continue;
        std::vector<std::byte> bytes(static_cast<size_t>(own.size() * each));
        state.begin_read_sealed(kind, b, own, bytes.data());
        std::memcpy(&whole[part][static_cast<size_t>(own.begin * each)], bytes.data(),
                    bytes.size());
      }
    }
  }
  return whole;
}

TEST(Bf16State, HasTheSameBitsOnAnyNumberOfRanks) {
  for (const StateType master : {StateType::kFp32, StateType::kBf16}) {
    const auto alone = trained_by(narrow_workload(1, Strategy::kFull, master));
    EXPECT_TRUE(trained_by(narrow_workload(2, Strategy::kFull, master)) == alone);
    EXPECT_TRUE(trained_by(narrow_workload(3, Strategy::kFull, master)) == alone);
    EXPECT_TRUE(trained_by(narrow_workload(3, Strategy::kNoShard, master)) == alone);
    EXPECT_TRUE(trained_by(narrow_workload(4, Strategy::kHybrid, master)) == alone);
    Workload other = narrow_workload(1, Strategy::kFull, master);
    other.train.seed = 4;
    EXPECT_FALSE(trained_by(other) == alone) << "the test must see bits";
  }
}

// Gathers send the state itself, without another rounding.
TEST(Bf16State, MasterWeightsAreGatheredAsTheyAre) {
  TrainingState state = make_state(narrow_workload(1, Strategy::kFull, StateType::kBf16));
  take_steps(state);
  const WeightShards shards = state.weight_shards();
  for (size_t b = 0; b < state.blocks().size(); ++b) {
    EXPECT_TRUE(shards[b].rounded);
    EXPECT_FALSE(shards[b].on_host);
    const ElementRange all = state.padded_shard(b);
    std::vector<uint16_t> kept(static_cast<size_t>(all.size()));
    state.begin_read_sealed(StateKind::kParam, b, all,
                            std::as_writable_bytes(std::span(kept)).data());
    EXPECT_EQ(std::memcmp(shards[b].values, kept.data(), kept.size() * sizeof(uint16_t)), 0);
  }
  EXPECT_FALSE(
      make_state(narrow_workload(1, Strategy::kFull, StateType::kFp32)).weight_shards()[0].rounded);
}

// A fault on purpose changes one parameter, by the largest bit of its fraction.
TEST(Bf16State, FlippedParameterIsABit) {
  TrainingState state = make_state(narrow_workload(1, Strategy::kFull, StateType::kBf16));
  const auto before = test::bytes_of(state);
  state.flip_parameter();
  const auto after = test::bytes_of(state);
  std::vector<uint8_t> differences;
  for (size_t i = 0; i < before.size(); ++i) {
    const auto difference = static_cast<uint8_t>(before[i] ^ after[i]);
    if (difference != 0) differences.push_back(difference);
  }
  EXPECT_THAT(differences, ::testing::ElementsAre(0x40));
}

}  // namespace
}  // namespace hpctl
