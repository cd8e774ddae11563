// SPDX-License-Identifier: Apache-2.0
// Boxes of a tensor: a range of indices in each dimension. A rank that has a part of a tensor has
// one or a few boxes of it, and whatever the mesh, the boxes of all ranks tile the tensor.
//
// Whether boxes tile a tensor is seen at their corners. Give a box the sign + at its first corner,
// and another sign at each step along an edge. At a point where boxes meet in the inside of a
// tiling, the signs cancel; what is left of a tiling are the corners of the tensor. Signs determine
// how many boxes lie over each element, so the converse holds, too. n boxes thus take one sort of
// n * 2^d corners, where d dimensions are cut, instead of n * n comparisons.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace hpctl {

struct Box {
  std::vector<int64_t> offsets;  // by dimension, as `lengths`
  std::vector<int64_t> lengths;
  auto operator<=>(const Box&) const = default;
};

// The same, in vectors of somebody else, who outlives it.
struct BoxView {
  std::span<const int64_t> offsets;
  std::span<const int64_t> lengths;
};

// Dimensions in which the boxes of one tensor may be cut, for tiles().
inline constexpr int kMaxCutDimensions = 4;

Box whole_box(std::span<const int64_t> shape);
// Product of the lengths, which are in range.
int64_t elements_of(const Box& box);

// The common part of two boxes with as many dimensions; nullopt when there is none.
std::optional<Box> intersect(const Box& a, const Box& b);

// Whether each element of a tensor of `shape` is in exactly one box. Precondition: the boxes lie in
// the tensor, and no length is 0. False also where they are cut in more than kMaxCutDimensions.
bool tiles(std::span<const int64_t> shape, std::span<const BoxView> boxes);

}  // namespace hpctl
