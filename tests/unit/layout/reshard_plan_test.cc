// SPDX-License-Identifier: Apache-2.0
// From any mesh to any other: what the plan moves is what each part of the new mesh has, found
// element by element.
#include "common/layout/reshard_plan.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/rng.h"
#include "common/layout/local_layout.h"
#include "common/layout/mesh.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

// One number for every element of the model; -1 where no element is.
using PartValues = std::vector<std::vector<int64_t>>;  // by block

ModelSpec model_to_move(Arch arch, int64_t kv_heads, bool tied) {
  ModelSpec model;
  model.arch = arch;
  model.dim = 24;
  model.layers = 4;
  model.heads = 12;
  model.kv_heads = arch == Arch::gpt ? model.heads : kv_heads;
  model.ffn = 36;
  model.vocab = 53;
  model.max_positions = 10;
  model.tied_embeddings = tied;
  return model;
}

std::vector<CutModel> models_to_move() {
  LoraSpec lora;
  lora.rank = 3;
  return {cut_model(model_to_move(Arch::llama, 2, true)),
          cut_model(model_to_move(Arch::llama, 12, false)),
          cut_model(model_to_move(Arch::gpt, 12, true)),
          cut_model(model_to_move(Arch::qwen3, 1, false)),
          cut_adapters(model_to_move(Arch::llama, 2, false), lora)};
}

// The place of a local element in the tensor that the model has.
int64_t global_place(const TensorSlot& whole, const LocalTensor& local, int64_t element) {
  std::vector<int64_t> index(local.shape.size());
  for (size_t d = local.shape.size(); d-- > 0;) {
    index[d] = element % local.shape[d];
    element /= local.shape[d];
  }
  const auto cut = static_cast<size_t>(local.dim);
  for (const PlacedBox& placed : local.boxes) {
    const int64_t in_box = index[cut] - placed.local_begin;
    if (in_box < 0 || in_box >= placed.box.lengths[cut]) continue;
    index[cut] = placed.box.offsets[cut] + in_box;
    break;
  }
  int64_t place = 0;
  for (size_t d = 0; d < index.size(); ++d) place = place * whole.shape[d] + index[d];
  return place;
}

// What a rank has of a block, whose interval is [begin, begin + capacity).
std::vector<int64_t> values_of(const CutModel& model, const LocalBlock& block, int64_t begin,
                               int64_t capacity) {
  std::vector<int64_t> values(static_cast<size_t>(capacity), -1);
  for (size_t t = 0; t < block.tensors.size(); ++t) {
    const LocalTensor& local = block.tensors[t];
    const TensorSlot& slot = block.block.tensors[t];
    const TensorSlot& whole = model.blocks[static_cast<size_t>(local.block)]
                                  .block.tensors[static_cast<size_t>(local.tensor)];
    const int64_t name = int64_t{local.block} * 100 + local.tensor;
    for (int64_t i = 0; i < slot.numel; ++i) {
      const int64_t at = slot.offset + i - begin;
      if (at < 0 || at >= capacity) continue;
      values[static_cast<size_t>(at)] = name * 1'000'000 + global_place(whole, local, i);
    }
  }
  return values;
}

// By part.
std::vector<PartValues> state_of(const CutModel& model, const Mesh& mesh) {
  std::vector<PartValues> state(static_cast<size_t>(mesh.parts()));
  const int32_t shards = mesh.degree(kShardDims);
  for (int32_t rank = 0; rank < mesh.world_size(); ++rank) {
    PartValues& part = state[static_cast<size_t>(mesh.part(rank))];
    if (!part.empty()) continue;  // a replica of one before
    for (const LocalBlock& block : local_layout(model, mesh, rank)) {
      const int64_t capacity = shard_capacity(block.block.numel, shards);
      part.push_back(
          values_of(model, block, capacity * mesh.coordinate(rank, kShardDims), capacity));
    }
  }
  return state;
}

// What comes of the pieces; elements that come twice or from nowhere are failures.
PartValues moved(const std::vector<ReshardPiece>& pieces, const std::vector<PartValues>& former,
                 const PartValues& like) {
  PartValues made;
  for (const auto& block : like) made.emplace_back(block.size(), -1);
  for (const ReshardPiece& piece : pieces) {
    const auto& source =
        former.at(static_cast<size_t>(piece.from_part)).at(static_cast<size_t>(piece.from.block));
    auto& target = made.at(static_cast<size_t>(piece.to.block));
    for (int64_t run = 0; run < piece.runs; ++run) {
      for (int64_t i = 0; i < piece.count; ++i) {
        const auto from = static_cast<size_t>(piece.from.first + run * piece.from.stride + i);
        const auto to = static_cast<size_t>(piece.to.first + run * piece.to.stride + i);
        EXPECT_EQ(target.at(to), -1) << "comes twice";
        target.at(to) = source.at(from);
      }
    }
  }
  return made;
}

Mesh random_mesh(Rng& random) {
  for (;;) {
    std::vector<MeshDimension> dimensions;
    int32_t world = 1;
    for (const std::string_view name :
         {MeshDim::kPp, MeshDim::kDpReplicate, MeshDim::kDpShard, MeshDim::kCp, MeshDim::kTp}) {
      const auto degree = static_cast<int32_t>(1 + random.below(4));
      dimensions.push_back({std::string(name), degree});
      world *= degree;
    }
    if (world <= 24) return Mesh(dimensions);
  }
}

Mesh random_mesh_of(const CutModel& model, Rng& random) {
  for (;;) {
    Mesh mesh = random_mesh(random);
    if (check_local_layout(model, mesh).ok()) return mesh;
  }
}

std::string text_of(const Mesh& mesh) {
  std::string text;
  for (const MeshDimension& d : mesh.dimensions()) text += d.name + std::to_string(d.degree) + " ";
  return text;
}

void expect_moved(const CutModel& model, const Mesh& from, const Mesh& to) {
  SCOPED_TRACE(text_of(from) + "-> " + text_of(to));
  const std::vector<PartValues> former = state_of(model, from);
  const std::vector<PartValues> expected = state_of(model, to);
  const ReshardPlan plan(model, from, to);
  for (int32_t part = 0; part < to.parts(); ++part) {
    const PartValues& wanted = expected[static_cast<size_t>(part)];
    ASSERT_EQ(moved(plan.pieces_of(part), former, wanted), wanted) << "part " << part;
  }
}

TEST(ReshardPlan, MovesEveryElementOnceBetweenRandomMeshes) {
  Rng random(7);
  for (const CutModel& model : models_to_move()) {
    for (int i = 0; i < 12; ++i) {
      const Mesh from = random_mesh_of(model, random);
      expect_moved(model, from, random_mesh_of(model, random));
    }
  }
}

// A state that only its data dimensions divide goes as few long runs.
TEST(ReshardPlan, RunsThatFollowEachOtherAreOne) {
  const CutModel model = cut_model(model_to_move(Arch::llama, 2, false));
  const ReshardPlan plan(model, Mesh(1, 2), Mesh(1, 1));
  size_t tensors = 0;
  for (const CutBlock& cut : model.blocks) tensors += cut.block.tensors.size();
  const std::vector<ReshardPiece> pieces = plan.pieces_of(0);
  // At most one tensor of a block lies in both halves, in the middle of a row of it.
  EXPECT_LE(pieces.size(), tensors + 3 * model.blocks.size());
  int64_t elements = 0;
  for (const ReshardPiece& piece : pieces) {
    EXPECT_EQ(piece.runs, 1);
    elements += piece.elements();
  }
  std::vector<Block> blocks;
  for (const CutBlock& cut : model.blocks) blocks.push_back(cut.block);
  EXPECT_EQ(elements, parameter_count(blocks));
}

// New parts read different copies, so that no former rank sends all of them.
TEST(ReshardPlan, CopiesAreReadInTurn) {
  const CutModel model = cut_model(model_to_move(Arch::llama, 2, false));
  const Mesh from({{"tp", 4}});
  const Mesh to({{"tp", 4}});
  const ReshardPlan plan(model, from, to);
  for (int32_t part = 0; part < 4; ++part) {
    for (const ReshardPiece& piece : plan.pieces_of(part)) EXPECT_EQ(piece.from_part, part);
  }
}

}  // namespace
}  // namespace hpctl
