// SPDX-License-Identifier: Apache-2.0
#include "common/layout/box.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/base/check.h"

namespace hpctl {
namespace {

// The dimensions in which some box does not have all indices. The others say nothing.
std::vector<size_t> cut_dimensions(std::span<const int64_t> shape, std::span<const BoxView> boxes) {
  std::vector<size_t> cut;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool is_cut = std::any_of(boxes.begin(), boxes.end(),
                                    [&](const BoxView& box) { return box.lengths[d] != shape[d]; });
    if (is_cut) cut.push_back(d);
  }
  return cut;
}

// Appends the corners of a box, each as twice its place among the points of the tensor's grid, and
// 1 more where its sign is -.
void append_corners(std::span<const int64_t> shape, std::span<const size_t> cut, const BoxView& box,
                    std::vector<int64_t>& corners) {
  for (unsigned corner = 0; corner < (1U << cut.size()); ++corner) {
    int64_t place = 0;
    unsigned sign = 0;
    for (size_t i = 0; i < cut.size(); ++i) {
      const size_t d = cut[i];
      const unsigned at_end = corner >> i & 1U;
      place = place * (shape[d] + 1) + box.offsets[d] + (at_end != 0 ? box.lengths[d] : 0);
      sign ^= at_end;
    }
    corners.push_back(place * 2 + sign);
  }
}

// What remains of each place after signs have cancelled, ascending by place.
std::vector<int64_t> cancel(std::vector<int64_t> corners) {
  std::sort(corners.begin(), corners.end());
  std::vector<int64_t> left;
  for (size_t begin = 0; begin < corners.size();) {
    const int64_t place = corners[begin] / 2;
    int64_t sum = 0;
    size_t end = begin;
    for (; end < corners.size() && corners[end] / 2 == place; ++end) {
      sum += corners[end] % 2 == 0 ? 1 : -1;
    }
    for (; sum > 0; --sum) left.push_back(place * 2);
    for (; sum < 0; ++sum) left.push_back(place * 2 + 1);
    begin = end;
  }
  return left;
}

}  // namespace

Box whole_box(std::span<const int64_t> shape) {
  return {std::vector<int64_t>(shape.size(), 0), {shape.begin(), shape.end()}};
}

int64_t elements_of(const Box& box) {
  int64_t elements = 1;
  for (const int64_t length : box.lengths) elements *= length;
  return elements;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  HP_CHECK(a.offsets.size() == b.offsets.size());
  Box common;
  for (size_t d = 0; d < a.offsets.size(); ++d) {
    const int64_t begin = std::max(a.offsets[d], b.offsets[d]);
    const int64_t end = std::min(a.offsets[d] + a.lengths[d], b.offsets[d] + b.lengths[d]);
    if (begin >= end) return std::nullopt;
    common.offsets.push_back(begin);
    common.lengths.push_back(end - begin);
  }
  return common;
}

bool tiles(std::span<const int64_t> shape, std::span<const BoxView> boxes) {
  const std::vector<size_t> cut = cut_dimensions(shape, boxes);
  if (cut.empty()) return boxes.size() == 1;
  if (cut.size() > static_cast<size_t>(kMaxCutDimensions)) return false;
  std::vector<int64_t> corners;
  corners.reserve(boxes.size() << cut.size());
  for (const BoxView& box : boxes) append_corners(shape, cut, box, corners);
  const Box whole = whole_box(shape);
  std::vector<int64_t> expected;
  append_corners(shape, cut, {whole.offsets, whole.lengths}, expected);
  return cancel(std::move(corners)) == cancel(std::move(expected));
}

}  // namespace hpctl
