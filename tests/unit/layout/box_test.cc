// SPDX-License-Identifier: Apache-2.0
// Boxes: their common part, and the check that they tile a tensor against one that counts.
#include "common/layout/box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/base/rng.h"

namespace hpctl {
namespace {

std::vector<BoxView> views_of(const std::vector<Box>& boxes) {
  std::vector<BoxView> views;
  for (const Box& box : boxes) views.push_back({box.offsets, box.lengths});
  return views;
}

bool covers(const Box& box, int64_t element, const std::vector<int64_t>& shape) {
  for (size_t d = shape.size(); d-- > 0;) {
    const int64_t index = element % shape[d];
    element /= shape[d];
    if (index < box.offsets[d] || index >= box.offsets[d] + box.lengths[d]) return false;
  }
  return true;
}

bool tiles_by_count(const std::vector<int64_t>& shape, const std::vector<Box>& boxes) {
  const int64_t elements = elements_of(whole_box(shape));
  for (int64_t i = 0; i < elements; ++i) {
    const auto times = std::count_if(boxes.begin(), boxes.end(),
                                     [&](const Box& box) { return covers(box, i, shape); });
    if (times != 1) return false;
  }
  return true;
}

// Cuts a random box in two, so often.
std::vector<Box> random_tiling(const std::vector<int64_t>& shape, int cuts, Rng& random) {
  std::vector<Box> boxes = {whole_box(shape)};
  for (int i = 0; i < cuts; ++i) {
    Box& box = boxes[random.below(boxes.size())];
    const size_t d = random.below(shape.size());
    if (box.lengths[d] < 2) continue;
    const auto at =
        1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(box.lengths[d] - 1)));
    Box rest = box;
    rest.offsets[d] += at;
    rest.lengths[d] -= at;
    box.lengths[d] = at;
    boxes.push_back(rest);
  }
  return boxes;
}

Box random_box(const std::vector<int64_t>& shape, Rng& random) {
  Box box = whole_box(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto begin = static_cast<int64_t>(random.below(static_cast<uint64_t>(shape[d])));
    box.offsets[d] = begin;
    box.lengths[d] =
        1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(shape[d] - begin)));
  }
  return box;
}

const std::vector<std::vector<int64_t>> kShapes = {{9}, {5, 7}, {1, 6}, {3, 4, 5}, {3, 2, 4, 3}};

TEST(Boxes, TileAsACountOfEachElementSays) {
  Rng random(7);
  int tilings = 0;
  int others = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::vector<int64_t>& shape = kShapes[random.below(kShapes.size())];
    std::vector<Box> boxes = random_tiling(shape, static_cast<int>(random.below(9)), random);
    const uint64_t change = random.below(4);
    if (change == 1) boxes[random.below(boxes.size())] = random_box(shape, random);
    if (change == 2) boxes.push_back(random_box(shape, random));
    if (change == 3 && boxes.size() > 1) boxes.pop_back();
    const bool expected = tiles_by_count(shape, boxes);
    ASSERT_EQ(tiles(shape, views_of(boxes)), expected) << "round " << round;
    ++(expected ? tilings : others);
  }
  EXPECT_GT(tilings, 500);
  EXPECT_GT(others, 500);
}

TEST(Boxes, TheCommonPartHasTheElementsOfBoth) {
  Rng random(8);
  for (int round = 0; round < 500; ++round) {
    const std::vector<int64_t>& shape = kShapes[random.below(kShapes.size())];
    const Box a = random_box(shape, random);
    const Box b = random_box(shape, random);
    const std::optional<Box> common = intersect(a, b);
    int64_t shared = 0;
    for (int64_t i = 0; i < elements_of(whole_box(shape)); ++i) {
      const bool in_both = covers(a, i, shape) && covers(b, i, shape);
      shared += in_both ? 1 : 0;
      ASSERT_EQ(common && covers(*common, i, shape), in_both);
    }
    ASSERT_EQ(common ? elements_of(*common) : 0, shared);
  }
}

TEST(Boxes, OfANumberIsOne) {
  const Box number;
  EXPECT_TRUE(tiles({}, views_of({number})));
  EXPECT_FALSE(tiles({}, {}));
  EXPECT_FALSE(tiles({}, views_of({number, number})));
}

}  // namespace
}  // namespace hpctl
