// SPDX-License-Identifier: Apache-2.0
// One state, saved by the ranks of one mesh and loaded by the ranks of another: the same elements,
// whatever the two are.
#include "trainer/state/rank_layout.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/shard_writer.h"
#include "trainer/state/training_state.h"

namespace hpctl {
namespace {

struct MeshCase {
  int32_t world_size;
  int64_t tensor;
  Strategy strategy = Strategy::kFull;
};

const std::vector<MeshCase> kMeshes = {
    {1, 1}, {3, 1}, {2, 2}, {4, 2}, {4, 4}, {6, 2}, {4, 2, Strategy::kNoShard}};

// Three ranks share the elements of a part unevenly. A vocabulary of 259 is odd, and four ranks
// share two key heads.
Workload workload_on(const MeshCase& mesh, int32_t rank) {
  Workload w;
  w.generation = 1;
  w.world_size = mesh.world_size;
  w.rank = rank;
  w.train.model = *model_preset("tiny");
  w.train.model.vocab = 259;
  w.train.data.seq_len = 16;
  w.train.seed = 3;
  w.train.strategy = mesh.strategy;
  w.train.degrees.tensor = mesh.tensor;
  return w;
}

DataIdentity some_data() { return {"fingerprint", 1000, 16}; }

TrainingState state_of(const Workload& workload) {
  auto state = TrainingState::create(-1, workload, some_data(), {});
  EXPECT_TRUE(state.ok()) << state.error().message;
  return std::move(state).value();
}

// All kinds then differ from element to element: a step whose gradient are the weights.
void step(TrainingState& state, const TrainSpec& train) {
  std::vector<const float*> gradients;
  for (const WeightShard& shard : state.weight_shards()) {
    gradients.push_back(static_cast<const float*>(shard.values));
  }
  state.apply(AdamStep(train.optimizer, 1, 1e-3, 1), gradients, 4);
}

Receipt write_rank(TrainingState& state, const Workload& workload, const std::string& dir) {
  EXPECT_TRUE(state.hold_newest());
  const Manifest manifest = state.manifest();
  const std::vector<WrittenPart> written = state.written_parts();
  ShardJob job{.checkpoint_dir = dir,
               .checkpoint = manifest.ref(),
               .rank = workload.rank,
               .world_size = workload.world_size,
               .blocks = &manifest.blocks,
               .parts = {}};
  for (const StateKind kind : kStateKinds) {
    for (const WrittenPart& part : written) {
      const auto* values = reinterpret_cast<const float*>(
          state.held(kind, static_cast<size_t>(part.block), part.range));
      const auto count = static_cast<size_t>(part.range.size());
      job.parts.push_back({.block = part.block,
                           .kind = kind,
                           .range = part.slice ? ElementRange{0, part.range.size()} : part.range,
                           .values = {values, count},
                           .slice = part.slice ? &*part.slice : nullptr});
    }
  }
  const auto receipt = write_shard(job);
  EXPECT_TRUE(receipt.ok()) << receipt.error().message;
  const auto decoded = decode_receipt(encode_receipt(*receipt));
  EXPECT_TRUE(decoded.ok()) << decoded.error().message;
  return *decoded;
}

// From `checkpoint`, or from the seed and a step on. The name of the save.
std::string save_on(const MeshCase& mesh, const std::string& checkpoint, const std::string& dir) {
  std::vector<Receipt> receipts;
  Manifest base;
  for (int32_t rank = 0; rank < mesh.world_size; ++rank) {
    Workload workload = workload_on(mesh, rank);
    workload.resume_checkpoint = checkpoint;
    TrainingState state = state_of(workload);
    if (checkpoint.empty()) step(state, workload.train);
    receipts.push_back(write_rank(state, workload, dir));
    if (rank == 0) base = state.manifest();
  }
  const std::string name = base.ref().name();
  const Outcome committed = commit_checkpoint(dir, std::move(base), receipts);
  EXPECT_TRUE(committed.ok()) << committed.error().message;
  return dir + "/" + name;
}

std::string digest_of(const std::string& checkpoint) {
  const auto digest = digest_checkpoint(checkpoint);
  return digest.ok() ? *digest : digest.error().message;
}

TEST(RankLayout, EveryMeshHasTheSameStateFromTheSeedOn) {
  const TemporaryDirectory dir;
  std::string expected;
  for (size_t m = 0; m < kMeshes.size(); ++m) {
    const std::string digest = digest_of(save_on(kMeshes[m], "", dir / std::to_string(m)));
    if (m == 0) expected = digest;
    ASSERT_EQ(digest.size(), 64U) << digest;
    EXPECT_EQ(digest, expected) << "mesh " << m;
  }
}

TEST(RankLayout, ACheckpointOfAnyMeshIsLoadedOnAnyOther) {
  const TemporaryDirectory dir;
  for (size_t from = 0; from < kMeshes.size(); ++from) {
    const std::string saved = save_on(kMeshes[from], "", dir / std::to_string(from));
    const std::string expected = digest_of(saved);
    for (size_t to = 0; to < kMeshes.size(); ++to) {
      const std::string there = dir / (std::to_string(from) + "-" + std::to_string(to));
      EXPECT_EQ(digest_of(save_on(kMeshes[to], saved, there)), expected) << from << " to " << to;
    }
  }
}

TEST(RankLayout, WithoutTensorParallelismTheBlocksAreTheModels) {
  const Workload workload = workload_on({3, 1}, 1);
  const RankLayout layout(workload.train, Mesh(1, 3), 1);
  EXPECT_FALSE(layout.is_divided());
  EXPECT_EQ(layout.blocks(), layout.whole());
  std::vector<WrittenPart> parts;
  layout.append_written(1, {16, 64}, parts);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].range, (ElementRange{16, 64}));
  EXPECT_FALSE(parts[0].slice);
}

}  // namespace
}  // namespace hpctl
