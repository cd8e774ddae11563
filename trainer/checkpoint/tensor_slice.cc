// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/tensor_slice.h"

#include <algorithm>
#include <vector>

#include "common/layout/box.h"

namespace hpctl {
namespace {

// The first element of the block that element `at` of the slice is.
int64_t place_of(const TensorSlot& tensor, const TensorSlice& slice, int64_t at) {
  int64_t stride = 1;
  int64_t place = tensor.offset;
  for (size_t d = tensor.shape.size(); d-- > 0;) {
    place += (slice.offsets[d] + at % slice.lengths[d]) * stride;
    at /= slice.lengths[d];
    stride *= tensor.shape[d];
  }
  return place;
}

// `slices` of one tensor.
std::string tensor_tiling_problem(const TensorSlot& tensor,
                                  std::span<const TensorSlice* const> slices) {
  int64_t left = tensor.numel;
  std::vector<BoxView> boxes;
  boxes.reserve(slices.size());
  for (const TensorSlice* slice : slices) {
    const int64_t elements = elements_of(*slice);
    if (elements > left) return tensor.name + " has elements that are there twice";
    left -= elements;
    boxes.push_back({slice->offsets, slice->lengths});
  }
  if (left > 0) return tensor.name + " misses " + std::to_string(left) + " elements";
  // As many elements as the tensor has: they are all of them unless two slices share some.
  if (tiles(tensor.shape, boxes)) return "";
  return tensor.name + " has elements that are there twice, or is cut in more than " +
         std::to_string(kMaxCutDimensions) + " dimensions";
}

}  // namespace

int64_t elements_of(const TensorSlice& slice) {
  int64_t elements = 1;
  for (const int64_t length : slice.lengths) elements *= length;
  return elements;
}

std::string slice_problem(std::span<const Block> blocks, const TensorSlice& slice) {
  if (slice.block < 0 || static_cast<size_t>(slice.block) >= blocks.size()) {
    return "a slice is of an unknown block";
  }
  const Block& block = blocks[static_cast<size_t>(slice.block)];
  if (slice.tensor < 0 || static_cast<size_t>(slice.tensor) >= block.tensors.size()) {
    return "a slice of block " + block.name + " is of an unknown tensor";
  }
  const TensorSlot& tensor = block.tensors[static_cast<size_t>(slice.tensor)];
  const size_t dims = tensor.shape.size();
  if (slice.offsets.size() != dims || slice.lengths.size() != dims) {
    return "a slice of " + tensor.name + " has another number of dimensions";
  }
  for (size_t d = 0; d < dims; ++d) {
    if (slice.offsets[d] < 0 || slice.lengths[d] < 1 || slice.lengths[d] > tensor.shape[d] ||
        slice.offsets[d] > tensor.shape[d] - slice.lengths[d]) {
      return "a slice of " + tensor.name + " lies outside it";
    }
  }
  return "";
}

std::string tiling_problem(const Block& block, std::span<const TensorSlice> slices) {
  std::vector<const TensorSlice*> sorted;
  sorted.reserve(slices.size());
  for (const TensorSlice& slice : slices) sorted.push_back(&slice);
  std::stable_sort(sorted.begin(), sorted.end(), [](const TensorSlice* a, const TensorSlice* b) {
    return a->tensor < b->tensor;
  });
  auto begin = sorted.cbegin();
  for (size_t t = 0; t < block.tensors.size(); ++t) {
    const auto end = std::find_if(begin, sorted.cend(), [&](const TensorSlice* slice) {
      return slice->tensor != static_cast<int32_t>(t);
    });
    auto problem = tensor_tiling_problem(block.tensors[t], {begin, end});
    if (!problem.empty()) return problem;
    begin = end;
  }
  return "";
}

void for_each_run(const TensorSlot& tensor, const TensorSlice& slice, ElementRange elements,
                  const std::function<void(int64_t, int64_t, int64_t)>& run) {
  // Elements that follow each other in the tensor, too: whole rows of its last dimensions.
  int64_t together = 1;
  for (size_t d = tensor.shape.size(); d-- > 0;) {
    together *= slice.lengths[d];
    if (slice.lengths[d] != tensor.shape[d]) break;
  }
  for (int64_t at = elements.begin; at < elements.end;) {
    const int64_t count = std::min(together - at % together, elements.end - at);
    run(place_of(tensor, slice, at), at, count);
    at += count;
  }
}

ElementRange span_of(const TensorSlot& tensor, const TensorSlice& slice, ElementRange elements) {
  return {place_of(tensor, slice, elements.begin), place_of(tensor, slice, elements.end - 1) + 1};
}

std::string describe_slice(const TensorSlot& tensor, const TensorSlice& slice) {
  std::string text = tensor.name + "[";
  for (size_t d = 0; d < slice.offsets.size(); ++d) {
    text += (d > 0 ? ", " : "") + std::to_string(slice.offsets[d]) + ":" +
            std::to_string(slice.offsets[d] + slice.lengths[d]);
  }
  return text + "]";
}

}  // namespace hpctl
