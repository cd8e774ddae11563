// SPDX-License-Identifier: Apache-2.0
// What the ranks of a mesh have of a model: on every mesh the boxes of a tensor tile it, with as
// many copies as each of them says.
#include "common/layout/local_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/divisors.h"
#include "common/layout/sharding.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;

ModelSpec small_model(Arch arch, int64_t kv_heads, bool tied) {
  ModelSpec model;
  model.arch = arch;
  model.dim = 32;
  model.layers = 5;
  model.heads = 16;
  model.kv_heads = arch == Arch::gpt ? model.heads : kv_heads;
  model.ffn = 48;
  model.vocab = 101;
  model.max_positions = 24;
  model.tied_embeddings = tied;
  return model;
}

std::vector<CutModel> some_models() {
  LoraSpec lora;
  lora.rank = 3;
  std::vector<CutModel> models;
  for (const Arch arch : {Arch::llama, Arch::gpt, Arch::qwen2, Arch::qwen3, Arch::mistral}) {
    for (const int64_t kv_heads : {1, 2, 16}) {
      models.push_back(cut_model(small_model(arch, kv_heads, kv_heads == 2)));
    }
  }
  models.push_back(cut_adapters(small_model(Arch::llama, 2, false), lora));
  return models;
}

Mesh mesh_with(int32_t pp, int32_t replicate, int32_t shard, int32_t cp, int32_t tp) {
  return Mesh(
      {{"pp", pp}, {"dp_replicate", replicate}, {"dp_shard", shard}, {"cp", cp}, {"tp", tp}});
}

// All of up to 16 ranks.
std::vector<Mesh> small_meshes() {
  std::vector<Mesh> meshes;
  for (int32_t pp = 1; pp <= 16; ++pp) {
    for (int32_t replicate = 1; pp * replicate <= 16; ++replicate) {
      for (int32_t shard = 1; pp * replicate * shard <= 16; ++shard) {
        for (int32_t cp = 1; pp * replicate * shard * cp <= 16; ++cp) {
          for (int32_t tp = 1; pp * replicate * shard * cp * tp <= 16; ++tp) {
            meshes.push_back(mesh_with(pp, replicate, shard, cp, tp));
          }
        }
      }
    }
  }
  return meshes;
}

struct Holding {
  std::vector<Box> boxes;
  std::map<int32_t, int> copies;  // by their number
  int32_t said = 0;
};

// Of the ranks of one data coordinate and part of the sequence, by tensor: each distinct set of
// boxes with its copies.
using Holdings = std::map<std::string, std::map<std::vector<Box>, Holding>>;

Holdings holdings_of(const CutModel& model, const Mesh& mesh) {
  Holdings all;
  for (const int32_t rank : mesh.group(0, std::vector{MeshDim::kPp, MeshDim::kTp})) {
    for (const LocalBlock& block : local_layout(model, mesh, rank)) {
      for (size_t t = 0; t < block.tensors.size(); ++t) {
        const LocalTensor& own = block.tensors[t];
        std::vector<Box> boxes;
        int64_t elements = 0;
        for (const PlacedBox& placed : own.boxes) {
          boxes.push_back(placed.box);
          elements += elements_of(placed.box);
        }
        EXPECT_EQ(block.block.tensors[t].numel, elements);
        Holding& holding = all[block.block.tensors[t].name][boxes];
        holding.boxes = boxes;
        holding.said = own.copies;
        ++holding.copies[own.copy];
      }
    }
  }
  return all;
}

void expect_tiled(const CutModel& model, const Holdings& all) {
  for (const CutBlock& cut : model.blocks) {
    for (const TensorSlot& tensor : cut.block.tensors) {
      ASSERT_TRUE(all.contains(tensor.name));
      std::vector<BoxView> boxes;
      for (const auto& [key, holding] : all.at(tensor.name)) {
        for (const Box& box : holding.boxes) boxes.push_back({box.offsets, box.lengths});
        ASSERT_EQ(static_cast<int32_t>(holding.copies.size()), holding.said) << tensor.name;
        for (const auto& [copy, times] : holding.copies) ASSERT_EQ(times, 1) << tensor.name;
        ASSERT_EQ(holding.copies.rbegin()->first + 1, holding.said) << tensor.name;
      }
      ASSERT_TRUE(tiles(tensor.shape, boxes)) << tensor.name;
    }
  }
}

TEST(LocalLayout, TilesEveryTensorOnEveryMesh) {
  int checked = 0;
  const std::vector<CutModel> models = some_models();
  std::set<std::pair<int32_t, int32_t>> seen;  // dp and cp divide no tensor
  for (const Mesh& mesh : small_meshes()) {
    const bool is_new = seen.insert({mesh.degree("pp"), mesh.degree("tp")}).second;
    for (const CutModel& model : models) {
      if (!is_new || !check_local_layout(model, mesh).ok()) continue;
      expect_tiled(model, holdings_of(model, mesh));
      ++checked;
    }
  }
  EXPECT_GT(checked, 150);
}

// The local tensor of a rank of tp alone.
LocalTensor find_local(const ModelSpec& model, int32_t tp, int32_t rank, const std::string& end) {
  for (const LocalBlock& block : local_layout(cut_model(model), mesh_with(1, 1, 1, 1, tp), rank)) {
    for (size_t t = 0; t < block.tensors.size(); ++t) {
      if (block.block.tensors[t].name.ends_with(end)) return block.tensors[t];
    }
  }
  ADD_FAILURE() << end;
  return {};
}

TEST(LocalLayout, AVocabularyIsCutUnevenly) {
  const ModelSpec model = small_model(Arch::llama, 2, false);
  std::vector<int64_t> begins;
  for (int32_t rank = 0; rank < 4; ++rank) {
    const LocalTensor own = find_local(model, 4, rank, "lm_head.weight");
    ASSERT_EQ(own.boxes.size(), 1U);
    EXPECT_EQ(own.copies, 1);
    begins.push_back(own.boxes[0].box.offsets[0]);
  }
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 25, 50, 75}));
  EXPECT_EQ(find_local(model, 4, 3, "lm_head.weight").boxes[0].box.lengths[0], 26);
}

TEST(LocalLayout, FewKeyHeadsAreOnSeveralRanks) {
  for (const int64_t kv_heads : {1, 2}) {
    const ModelSpec model = small_model(Arch::llama, kv_heads, false);
    for (int32_t rank = 0; rank < 4; ++rank) {
      const LocalTensor own = find_local(model, 4, rank, "k_proj.weight");
      EXPECT_EQ(own.copies, 4 / kv_heads);
      EXPECT_EQ(own.copy, rank % (4 / kv_heads));
      EXPECT_EQ(own.boxes[0].box.offsets[0], rank / (4 / kv_heads) * model.head_size());
      EXPECT_EQ(own.boxes[0].box.lengths[0], model.head_size());
    }
  }
}

TEST(LocalLayout, QueriesKeysAndValuesSideBySideAreThreeBoxes) {
  const LocalTensor own = find_local(small_model(Arch::gpt, 16, false), 4, 1, "c_attn.bias");
  ASSERT_EQ(own.boxes.size(), 3U);
  EXPECT_EQ(own.boxes[2], (PlacedBox{{{72}, {8}}, 16}));
}

TEST(LocalLayout, OfOneRankIsTheModels) {
  for (const CutModel& model : some_models()) {
    const std::vector<LocalBlock> own = local_layout(model, Mesh(2, 3), 4);
    ASSERT_EQ(own.size(), model.blocks.size());
    for (size_t b = 0; b < own.size(); ++b) {
      EXPECT_EQ(own[b].block, model.blocks[b].block);
      for (const LocalTensor& tensor : own[b].tensors) EXPECT_EQ(tensor.copies, 1);
    }
  }
}

TEST(LocalLayout, RefusalsNameBothNumbersAndWhatFits) {
  ModelSpec model = small_model(Arch::llama, 2, false);
  const auto refused = [&](const Mesh& mesh) {
    const Outcome outcome = check_local_layout(cut_model(model), mesh);
    EXPECT_FALSE(outcome.ok());
    return outcome.ok() ? "" : outcome.error().message;
  };
  EXPECT_THAT(refused(mesh_with(1, 1, 1, 1, 3)),
              HasSubstr("q_proj.weight has 16 heads, which tp 3 does not divide; 2 and 4 fit"));
  EXPECT_EQ(refused(mesh_with(6, 1, 1, 1, 1)),
            "the model has 5 layers, less than pp 6; 5 and less fit");
  model.ffn = 50;
  EXPECT_THAT(refused(mesh_with(1, 1, 1, 1, 4)),
              HasSubstr("gate_proj.weight has 50 rows or columns, which tp 4 does not divide; 2 "
                        "and 5 fit"));
  model = small_model(Arch::llama, 4, false);
  model.heads = 12;
  model.dim = 48;
  EXPECT_THAT(refused(mesh_with(1, 1, 1, 1, 6)),
              HasSubstr("k_proj.weight has 4 heads, which tp 6 does not divide; 4 fits"));
  EXPECT_EQ(nearest_divisors(6, 4), "; 3 and 6 fit");
  EXPECT_EQ(nearest_divisors(6, 7), "; 6 fits");
}

// ---- the mesh -----------------------------------------------------------------------------------

TEST(MeshParts, AreTheSameOnReplicasAlone) {
  for (const Mesh& mesh : small_meshes()) {
    std::map<int32_t, std::vector<int32_t>> holders;
    std::map<int32_t, int> data_shares;
    std::map<std::pair<int32_t, int32_t>, int> loss_shares;
    for (int32_t rank = 0; rank < mesh.world_size(); ++rank) {
      holders[mesh.part(rank)].push_back(rank);
      const DataRank data = mesh.data_rank(rank);
      data_shares[data.index] += data.shares_data ? 1 : 0;
      loss_shares[{data.index, mesh.coordinate(rank, "cp")}] += data.shares_loss ? 1 : 0;
      // The former mesh of a job has the same data coordinates, however they were divided.
      ASSERT_EQ(mesh.with_world(mesh.world_size()).data_rank(rank), data);
    }
    ASSERT_EQ(static_cast<int32_t>(holders.size()), mesh.parts());
    ASSERT_EQ(mesh.parts() * mesh.degree("dp_replicate"), mesh.world_size());
    ASSERT_EQ(mesh.unit() * mesh.degree(kDataDims), mesh.world_size());
    for (const auto& [part, ranks] : holders) ASSERT_EQ(mesh.replicas(ranks.front()), ranks);
    for (const auto& [index, times] : data_shares) ASSERT_EQ(times, 1);
    for (const auto& [index, times] : loss_shares) ASSERT_EQ(times, 1);
  }
}

TEST(MeshParts, OfTodaysStrategiesAreTodays) {
  for (const Strategy strategy : {Strategy::kFull, Strategy::kShardGradOp, Strategy::kOptimizer,
                                  Strategy::kNoShard, Strategy::kHybrid}) {
    for (int32_t world = 2; world <= 16; world += 2) {
      TrainSpec train;
      train.strategy = strategy;
      const auto mesh = mesh_of(train, world, 2);
      ASSERT_TRUE(mesh.ok());
      const int32_t parts = state_parts(train, world, 2);
      ASSERT_EQ(mesh->parts(), parts);
      ASSERT_EQ(mesh->unit(), 1);
      for (int32_t rank = 0; rank < world; ++rank) {
        ASSERT_EQ(mesh->part(rank), rank % parts);
        ASSERT_TRUE(mesh->data_rank(rank).shares_loss && mesh->data_rank(rank).shares_data);
      }
    }
  }
}

// Equally many parts are not enough: a worker that goes on from its memory must have its new part.
TEST(MeshParts, AreTheSameOnlyWhereTheStateIsDividedAlike) {
  const Mesh data = mesh_with(1, 1, 2, 1, 1);
  EXPECT_TRUE(data.is_same_part(1, data, 1));
  EXPECT_FALSE(data.is_same_part(1, data, 0));
  EXPECT_TRUE(data.is_same_part(1, mesh_with(1, 1, 1, 2, 1), 1)) << "cp divides the same range";
  EXPECT_FALSE(data.is_same_part(1, mesh_with(1, 1, 1, 1, 2), 1)) << "tp divides layers";
  EXPECT_FALSE(data.is_same_part(1, mesh_with(2, 1, 1, 1, 1), 1)) << "pp has other layers";
  EXPECT_TRUE(data.is_same_part(1, mesh_with(1, 2, 2, 1, 1), 3)) << "a replica";
  EXPECT_FALSE(data.is_same_part(1, mesh_with(1, 2, 2, 1, 1), 2));
}

TEST(MeshParts, DegreesDivideTheWorldBeforeTheStrategyDoes) {
  TrainSpec train;
  train.degrees = {.pipeline = 2, .context = 1, .tensor = 2, .expert = 1};
  const auto full = mesh_of(train, 16, 8);
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(
      full->dimensions(),
      Mesh({{"pp", 2}, {"dp_replicate", 1}, {"dp_shard", 4}, {"cp", 1}, {"tp", 2}}).dimensions());
  EXPECT_EQ(state_parts(train, 16, 8), full->parts());
  train.strategy = Strategy::kHybrid;
  train.shard_group = 2;
  EXPECT_EQ(mesh_of(train, 16, 8)->degree(MeshDim::kDpReplicate), 2);
  EXPECT_EQ(state_parts(train, 16, 8), 8);
  for (const int32_t world : {2, 6}) {
    const auto refused = mesh_of(train, world, 2);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "parallelism: expected pipeline x context x tensor degree (4) to divide the number "
              "of workers (" +
                  std::to_string(world) + ")");
  }
}

}  // namespace
}  // namespace hpctl
