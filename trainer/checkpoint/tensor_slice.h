// SPDX-License-Identifier: Apache-2.0
// A part of a tensor that is a box: offsets and lengths by dimension. It is stored row-major, like
// a separate tensor. A layer that is divided over ranks by rows or columns of its matrices is
// stored in slices: boxes, cut wherever an interval of the divided layer does not end with a row. A
// block that is stored as intervals of its flat range (block_layout.h) has no slices.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/layout/block_layout.h"

namespace hpctl {

struct TensorSlice {
  int32_t block = 0;             // index in the blocks
  int32_t tensor = 0;            // index in Block::tensors
  std::vector<int64_t> offsets;  // by dimension, as `lengths`
  std::vector<int64_t> lengths;
  // In the order in which they are stored: by block, tensor, offsets.
  auto operator<=>(const TensorSlice&) const = default;
};

// Product of the lengths, which are in range.
int64_t elements_of(const TensorSlice& slice);

// The problem that keeps `slice` from being one of the blocks', or "": an unknown tensor, another
// number of dimensions, or elements that the tensor does not have.
std::string slice_problem(std::span<const Block> blocks, const TensorSlice& slice);

// The problem that keeps `slices`, all of the block and without slice_problem(), from holding every
// element of every tensor of the block once, or "". A tensor that is cut in more than
// kMaxCutDimensions (box.h) is a problem, too. Takes n log n for n slices.
std::string tiling_problem(const Block& block, std::span<const TensorSlice> slices);

// `elements` of a slice of `tensor`, counted row-major within the slice, as adjacent runs of the
// block: run(first element in the block, first element of the slice, count), ascending in both.
void for_each_run(const TensorSlot& tensor, const TensorSlice& slice, ElementRange elements,
                  const std::function<void(int64_t, int64_t, int64_t)>& run);

// The smallest range of the block that has all of those elements, of which there are some.
ElementRange span_of(const TensorSlot& tensor, const TensorSlice& slice, ElementRange elements);

// "model.layers.0.mlp.up_proj.weight[0:48, 16:32]"
std::string describe_slice(const TensorSlot& tensor, const TensorSlice& slice);

}  // namespace hpctl
