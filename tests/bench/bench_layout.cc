// SPDX-License-Identifier: Apache-2.0
// Time to check that a million boxes tile a tensor. Exits with 1 above two seconds.
#include <chrono>
#include <cstdint>
#include <iostream>
#include <vector>

#include "common/layout/box.h"

int main() {
  constexpr int64_t kSide = 1000;  // boxes in each dimension
  const std::vector<int64_t> shape = {kSide * 16, kSide * 8};
  std::vector<hpctl::Box> boxes;
  for (int64_t i = 0; i < kSide; ++i) {
    for (int64_t j = 0; j < kSide; ++j) boxes.push_back({{i * 16, j * 8}, {16, 8}});
  }
  const auto began = std::chrono::steady_clock::now();
  std::vector<hpctl::BoxView> views;
  for (const hpctl::Box& box : boxes) views.push_back({box.offsets, box.lengths});
  const bool whole = hpctl::tiles(shape, views);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::cout << boxes.size() << " boxes: " << took.count() << " s\n";
  return whole && took.count() <= 2 ? 0 : 1;
}
