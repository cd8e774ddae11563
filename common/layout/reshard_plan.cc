// SPDX-License-Identifier: Apache-2.0
#include "common/layout/reshard_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/check.h"

namespace hpctl {
namespace {

std::optional<Rectangle> common_part(const Rectangle& a, const Rectangle& b) {
  const ElementRange rows =
      intersect(ElementRange{a.row, a.row + a.rows}, ElementRange{b.row, b.row + b.rows});
  const ElementRange columns = intersect(ElementRange{a.column, a.column + a.columns},
                                         ElementRange{b.column, b.column + b.columns});
  if (rows.empty() || columns.empty()) return std::nullopt;
  return Rectangle{rows.begin, rows.size(), columns.begin, columns.size()};
}

// Columns of a local tensor and where they lie in the tensor that the model has.
struct Columns {
  int64_t local = 0;
  int64_t global = 0;
  int64_t count = 0;
};

Columns columns_of(const PlacedBox& placed, int32_t dim, int64_t inner) {
  const auto d = static_cast<size_t>(dim);
  return {placed.local_begin * inner, placed.box.offsets[d] * inner, placed.box.lengths[d] * inner};
}

int64_t width_of(const LocalTensor& tensor, int64_t inner) {
  return tensor.shape[static_cast<size_t>(tensor.dim)] * inner;
}

int64_t numel_of(const LocalTensor& tensor) {
  int64_t numel = 1;
  for (const int64_t extent : tensor.shape) numel *= extent;
  return numel;
}

// The elements of a tensor that an interval of its block has, counted within the tensor.
ElementRange within(ElementRange interval, int64_t offset, int64_t numel) {
  const ElementRange common = intersect(interval, {offset, offset + numel});
  return {common.begin - offset, common.end - offset};
}

ElementRange interval_of(const LocalBlock& block, int32_t interval, int32_t intervals) {
  const int64_t capacity = shard_capacity(block.block.numel, intervals);
  return {interval * capacity, (interval + 1) * capacity};
}

// Runs that follow each other on both sides are one.
void append(ReshardPiece piece, std::vector<ReshardPiece>& pieces) {
  if (piece.runs > 1 && piece.from.stride == piece.count && piece.to.stride == piece.count) {
    piece.count *= piece.runs;
    piece.runs = 1;
  }
  if (piece.runs == 1) piece.from.stride = piece.to.stride = piece.count;
  pieces.push_back(piece);
}

}  // namespace

std::vector<ReshardPlan::Holder> ReshardPlan::holders_of(const CutModel& model, const Mesh& mesh) {
  std::vector<Holder> holders;
  for (const int32_t first : mesh.group(0, std::vector{MeshDim::kPp, MeshDim::kTp})) {
    Holder& holder = holders.emplace_back();
    holder.blocks = local_layout(model, mesh, first);
    for (const int32_t rank : mesh.group(first, kShardDims)) {
      holder.parts.push_back(mesh.part(rank));
    }
  }
  return holders;
}

ReshardPlan::ReshardPlan(const CutModel& model, const Mesh& from, const Mesh& to)
    : model_(model), from_(holders_of(model, from)), to_(holders_of(model, to)) {
  place_of_part_.resize(static_cast<size_t>(to.parts()));
  for (size_t h = 0; h < to_.size(); ++h) {
    for (size_t i = 0; i < to_[h].parts.size(); ++i) {
      place_of_part_[static_cast<size_t>(to_[h].parts[i])] = {static_cast<int32_t>(h),
                                                              static_cast<int32_t>(i)};
    }
  }
  for (const Holder& holder : from_) {
    for (size_t b = 0; b < holder.blocks.size(); ++b) {
      const LocalBlock& block = holder.blocks[b];
      for (size_t t = 0; t < block.tensors.size(); ++t) {
        const LocalTensor& tensor = block.tensors[t];
        sources_[{tensor.block, tensor.tensor}].push_back(
            {&holder, static_cast<int32_t>(b), &tensor, block.block.tensors[t].offset});
      }
    }
  }
}

// Elements of one index of the dimension that is cut.
int64_t ReshardPlan::inner_of(const LocalTensor& tensor) const {
  const auto& shape = model_.blocks[static_cast<size_t>(tensor.block)]
                          .block.tensors[static_cast<size_t>(tensor.tensor)]
                          .shape;
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(tensor.dim) + 1; d < shape.size(); ++d) inner *= shape[d];
  return inner;
}

std::vector<ReshardPiece> ReshardPlan::pieces_of(int32_t to_part) const {
  const auto [place, interval] = place_of_part_.at(static_cast<size_t>(to_part));
  const Holder& holder = to_[static_cast<size_t>(place)];
  std::vector<ReshardPiece> pieces;
  for (size_t b = 0; b < holder.blocks.size(); ++b) {
    const LocalBlock& block = holder.blocks[b];
    for (size_t t = 0; t < block.tensors.size(); ++t) {
      take_tensor(
          {&holder, static_cast<int32_t>(b), &block.tensors[t], block.block.tensors[t].offset},
          interval, to_part, pieces);
    }
  }
  return pieces;
}

// Copies have the same values: different new parts take different ones.
void ReshardPlan::take_tensor(const Held& to, int32_t interval, int32_t to_part,
                              std::vector<ReshardPiece>& pieces) const {
  for (const Held& from : sources_.at({to.tensor->block, to.tensor->tensor})) {
    if (from.tensor->copy != to_part % from.tensor->copies) continue;
    take_from(from, to, interval, pieces);
  }
}

void ReshardPlan::take_from(const Held& from, const Held& to, int32_t interval,
                            std::vector<ReshardPiece>& pieces) const {
  const LocalBlock& from_block = from.holder->blocks[static_cast<size_t>(from.block)];
  const LocalBlock& to_block = to.holder->blocks[static_cast<size_t>(to.block)];
  const auto from_intervals = static_cast<int32_t>(from.holder->parts.size());
  const auto to_intervals = static_cast<int32_t>(to.holder->parts.size());
  const ElementRange own = interval_of(to_block, interval, to_intervals);
  const int64_t from_capacity = shard_capacity(from_block.block.numel, from_intervals);
  const int64_t inner = inner_of(*to.tensor);
  const int64_t from_width = width_of(*from.tensor, inner);
  const int64_t to_width = width_of(*to.tensor, inner);
  const int64_t from_numel = numel_of(*from.tensor);
  const std::vector<Rectangle> wanted =
      rectangles_of(within(own, to.offset, numel_of(*to.tensor)), to_width);

  // `there`: of the former local tensor; column + `shift` is the new one's.
  const auto take = [&](const Rectangle& there, int64_t shift) {
    const int64_t first = from.offset + there.row * from_width + there.column;
    const int64_t last = first + (there.rows - 1) * from_width + there.columns - 1;
    for (int64_t i = first / from_capacity; i <= last / from_capacity; ++i) {
      const ElementRange held = interval_of(from_block, static_cast<int32_t>(i), from_intervals);
      for (const Rectangle& part :
           rectangles_of(within(held, from.offset, from_numel), from_width)) {
        const std::optional<Rectangle> common = common_part(part, there);
        if (!common) continue;
        append({from.holder->parts[static_cast<size_t>(i)],
                {from.block, from.offset + common->row * from_width + common->column - held.begin,
                 from_width},
                {to.block, to.offset + common->row * to_width + common->column + shift - own.begin,
                 to_width},
                common->rows,
                common->columns},
               pieces);
      }
    }
  };

  for (const Rectangle& rectangle : wanted) {
    for (const PlacedBox& to_box : to.tensor->boxes) {
      const Columns here = columns_of(to_box, to.tensor->dim, inner);
      for (const PlacedBox& from_box : from.tensor->boxes) {
        const Columns there = columns_of(from_box, from.tensor->dim, inner);
        // In columns of the former local tensor.
        const int64_t shift = here.local - here.global + there.global - there.local;
        const Rectangle asked = {rectangle.row, rectangle.rows, rectangle.column - shift,
                                 rectangle.columns};
        const Rectangle in_both = {rectangle.row, rectangle.rows, here.local - shift, here.count};
        const Rectangle in_box = {rectangle.row, rectangle.rows, there.local, there.count};
        const auto wanted_there = common_part(asked, in_both);
        if (!wanted_there) continue;
        if (const auto common = common_part(*wanted_there, in_box)) take(*common, shift);
      }
    }
  }
}

}  // namespace hpctl
