// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/rank_layout.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "trainer/arch/initial_values.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"

namespace hpctl {

namespace {

// Of a checkpoint, read at a time for runs that are shorter than a quarter of it: 16 MiB.
constexpr int64_t kWindow = int64_t{4} << 20;

ElementRange within(const TensorSlot& tensor, ElementRange range) {
  return intersect(range, {tensor.offset, tensor.offset + tensor.numel});
}

// The product of the dimensions behind the one that is cut: 1 if that is the last.
int64_t inner_of(const LocalTensor& local) {
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(local.dim) + 1; d < local.shape.size(); ++d) {
    inner *= local.shape[d];
  }
  return inner;
}

// A window of one tensor of a checkpoint, which moves forward.
class TensorWindow {
 public:
  TensorWindow(CheckpointLoader& loader, int32_t block, StateKind kind)
      : loader_(loader), block_(block), kind_(kind) {}

  // Elements of the block, all in [first, first + count), which is in `tensor`.
  Outcome read(const TensorSlot& tensor, int64_t first, std::span<float> out) {
    const auto count = static_cast<int64_t>(out.size());
    if (count >= kWindow / 4) {
      return loader_.load_range(block_, kind_, {first, first + count}, out);
    }
    if (first < range_.begin || first + count > range_.end) {
      range_ = {first, std::min(first + kWindow, tensor.offset + tensor.numel)};
      values_.resize(static_cast<size_t>(range_.size()));
      HP_TRY(loader_.load_range(block_, kind_, range_, values_));
    }
    std::copy_n(values_.begin() + (first - range_.begin), count, out.begin());
    return Ok{};
  }

 private:
  CheckpointLoader& loader_;
  int32_t block_;
  StateKind kind_;
  ElementRange range_;
  std::vector<float> values_;
};

}  // namespace

RankLayout::RankLayout(const TrainSpec& train, const Mesh& mesh, int32_t rank)
    : whole_(trained_layout(train)) {
  set_no_decay(train.model, whole_, train.optimizer.no_decay);
  if (mesh.degree(MeshDim::kTp) == 1) return;
  CutModel model = trained_cuts(train);
  for (size_t b = 0; b < whole_.size(); ++b) model.blocks[b].block = whole_[b];
  local_ = local_layout(model, mesh, rank);
  for (const LocalBlock& local : local_) blocks_.push_back(local.block);
}

Outcome RankLayout::for_each_run(size_t block, ElementRange range, const Run& run) const {
  const LocalBlock& local = local_[block];
  for (size_t t = 0; t < local.tensors.size(); ++t) {
    const LocalTensor& own = local.tensors[t];
    const TensorSlot& slot = local.block.tensors[t];
    const TensorSlot& tensor = whole_[block].tensors[static_cast<size_t>(own.tensor)];
    const auto dim = static_cast<size_t>(own.dim);
    const int64_t inner = inner_of(own);
    // A row is all that the cut divides at once.
    const int64_t width = own.shape[dim] * inner;
    const int64_t whole_width = tensor.shape[dim] * inner;
    const ElementRange wanted = within(slot, range);
    for (int64_t at = wanted.begin; at < wanted.end;) {
      const int64_t row = (at - slot.offset) / width;
      const int64_t begin = slot.offset + row * width;
      for (const PlacedBox& placed : own.boxes) {
        const int64_t first = begin + placed.local_begin * inner;
        const ElementRange part =
            intersect(wanted, {first, first + placed.box.lengths[dim] * inner});
        if (part.empty()) continue;
        const int64_t column = placed.box.offsets[dim] * inner + (part.begin - first);
        HP_TRY(run(tensor, row * whole_width + column, part.begin, part.size()));
      }
      at = begin + width;
    }
  }
  return Ok{};
}

void RankLayout::fill_initial_values(const TrainSpec& train, size_t block, ElementRange range,
                                     float* out, int threads) const {
  const Block& whole = whole_[block];
  if (!is_divided()) {
    hpctl::fill_initial_values(train.model, whole, train.seed, range, out, threads);
    return;
  }
  std::fill(out, out + range.size(), 0.0F);
  const Outcome filled = for_each_run(
      block, range, [&](const TensorSlot& tensor, int64_t from, int64_t to, int64_t count) {
        const int64_t first = tensor.offset + from;
        hpctl::fill_initial_values(train.model, whole, train.seed, {first, first + count},
                                   out + (to - range.begin), threads);
        return Outcome(Ok{});
      });
  HP_CHECK(filled.ok());
}

Outcome RankLayout::load_range(CheckpointLoader& loader, size_t block, StateKind kind,
                               ElementRange range, std::span<float> out) const {
  const auto index = static_cast<int32_t>(block);
  if (!is_divided()) return loader.load_range(index, kind, range, out);
  std::fill(out.begin(), out.end(), 0.0F);
  TensorWindow window(loader, index, kind);
  return for_each_run(
      block, range, [&](const TensorSlot& tensor, int64_t from, int64_t to, int64_t count) {
        return window.read(
            tensor, tensor.offset + from,
            out.subspan(static_cast<size_t>(to - range.begin), static_cast<size_t>(count)));
      });
}

void RankLayout::append_written(size_t block, ElementRange range,
                                std::vector<WrittenPart>& parts) const {
  const auto index = static_cast<int32_t>(block);
  if (!is_divided()) {
    parts.push_back({index, range, std::nullopt});
    return;
  }
  const LocalBlock& local = local_[block];
  for (size_t t = 0; t < local.tensors.size(); ++t) {
    const LocalTensor& own = local.tensors[t];
    if (own.copy != 0) continue;
    // More of them would not lie next to each other in both orders.
    HP_CHECK(own.boxes.size() == 1 && own.shape.size() <= 2);
    const TensorSlot& slot = local.block.tensors[t];
    const ElementRange wanted = within(slot, range);
    const ElementRange elements = {wanted.begin - slot.offset, wanted.end - slot.offset};
    for (const Rectangle& r : rectangles_of(elements, own.shape.back())) {
      TensorSlice slice;
      slice.block = index;
      slice.tensor = own.tensor;
      slice.offsets = own.boxes.front().box.offsets;
      slice.lengths = {r.rows, r.columns};
      if (own.shape.size() == 1) slice.lengths = {r.columns};
      if (own.shape.size() == 2) slice.offsets.front() += r.row;
      slice.offsets.back() += r.column;
      const int64_t first = slot.offset + r.row * own.shape.back() + r.column;
      parts.push_back({index, {first, first + elements_of(slice)}, std::move(slice)});
    }
  }
}

}  // namespace hpctl
