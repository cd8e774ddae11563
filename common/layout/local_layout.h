// SPDX-License-Identifier: Apache-2.0
// What a rank has of a model whose layers are divided: by pp into stages, and each tensor by tp.
//
// Each tensor has a rule that says how it is cut, which its architecture gives (Architecture::cut
// in trainer/arch/registry.h). From that, the mesh and a rank follow the rank's local blocks: flat
// layouts as block_layout.h has them, of smaller tensors. Each local tensor is made of boxes of the
// tensor that the model has, so FSDP and AdamW need not know what a layer is divided into, and
// checkpoints need not know on which mesh they were written. dp_shard and cp divide the flat range
// of a local block; dp_replicate divides nothing.
//
// A tensor that is not cut, and keys and values if there are fewer heads of them than tp, are on
// several ranks. One rule holds for all these copies: the gradient is the sum over the copies, and
// copy 0 counts in the norm and is written to a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/layout/block_layout.h"
#include "common/layout/box.h"
#include "common/layout/mesh.h"

namespace hpctl {

// How tp cuts a tensor. The default does not cut: each rank has a copy.
struct CuttingRule {
  enum class Kind : uint8_t {
    kCopies,
    kEqual,   // the number of units is a multiple of tp
    kShared,  // or tp is a multiple of it: neighbours then have the same unit (keys and values)
    kUneven,  // rank r has [r * units / tp, (r + 1) * units / tp): no padding (a vocabulary)
  };
  Kind kind = Kind::kCopies;
  int32_t dim = 0;       // that is cut
  int32_t sections = 1;  // that lie side by side in it and are cut alike (q, k, v of GPT-2)
  int64_t unit = 1;      // indices that stay together: those of a head
  bool operator==(const CuttingRule&) const = default;
};

// A block of the model with the rules of its tensors.
struct CutBlock {
  Block block;
  std::vector<CuttingRule> rules;  // index in Block::tensors
};

struct CutModel {
  std::vector<CutBlock> blocks;  // in forward order
  // The tensor of the first block that the last one uses, too; "" = none.
  std::string tied;
};

// Rank `rank` of `size` ranks of tp.
struct TensorPlace {
  int32_t rank = 0;
  int32_t size = 1;
};

// Indices [begin, begin + count).
struct Share {
  int64_t begin = 0;
  int64_t count = 0;
};
// Part `part`, if `total` is divided into `parts` whose counts differ by one at most.
Share share_of(int64_t total, int64_t part, int64_t parts);

// A box of the whole tensor, and the place in the rank's own tensor where it lies.
struct PlacedBox {
  Box box;
  int64_t local_begin = 0;  // index in the dimension that is cut
  bool operator==(const PlacedBox&) const = default;
};

// The part of a tensor that a rank has.
struct LocalTensor {
  std::vector<int64_t> shape;  // local
  int32_t dim = 0;             // that is cut
  std::vector<PlacedBox> boxes;
  // Ranks of one data coordinate and one part of the sequence that have it. Those of tp are
  // consecutive.
  int32_t copies = 1;
  int32_t copy = 0;    // which of them this one is
  int32_t block = 0;   // of the whole model, as `tensor`; local_layout() alone sets both
  int32_t tensor = 0;  // index in Block::tensors
  bool operator==(const LocalTensor&) const = default;
};

// That of one rank of tp. Precondition: check_local_layout() of a model with this tensor.
LocalTensor local_tensor(const TensorSlot& tensor, const CuttingRule& rule, TensorPlace place);

// A tensor has the same offset on all ranks of tp. Where its parts differ in size, as those of a
// vocabulary may, each rank has room for the largest one. So numel is the same everywhere, and an
// interval of the flat range has the same elements of a copied tensor on all ranks.
struct LocalBlock {
  Block block;                       // with the model's names and the local shapes
  std::vector<LocalTensor> tensors;  // index in Block::tensors
  bool operator==(const LocalBlock&) const = default;
};

// Rows [row, row + rows) of a matrix, and columns [column, column + columns).
struct Rectangle {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
};

// The elements [begin, end) of a matrix with rows of `width`, in order: at most three rectangles.
std::vector<Rectangle> rectangles_of(ElementRange elements, int64_t width);

// The layers [begin, end) of a stage.
struct StageLayers {
  int64_t begin = 0;
  int64_t end = 0;
};

// Stages are contiguous; where layers are no multiple of pp, the first ones have one more.
// Precondition: layers >= pp >= 1.
StageLayers layers_of_stage(int64_t layers, int32_t stages, int32_t stage);

// The problem that keeps the model from being divided by the mesh. kInvalidArgument, with both
// numbers and the nearest that fit.
Outcome check_local_layout(const CutModel& model, const Mesh& mesh);

// The blocks of a rank, in forward order. Precondition: check_local_layout(). At tp 1 and pp 1 they
// are the model's own.
std::vector<LocalBlock> local_layout(const CutModel& model, const Mesh& mesh, int32_t rank);

}  // namespace hpctl
