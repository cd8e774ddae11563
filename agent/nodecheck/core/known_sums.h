// SPDX-License-Identifier: Apache-2.0
// Values whose all-reduce is known, so that a sum that is wrong shows. They are whole numbers of 16
// bits, so their sums over kMostSummedRanks are exact in float32 in whatever order they are added.
// Each place and each rank has another value: what arrives at the wrong place is wrong, too. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hpctl::agent {

inline constexpr int kMostSummedRanks = 128;  // 2^7 values below 2^16 stay below 2^24

// The rank's input at this place.
inline float known_value(int rank, size_t place) {
  uint64_t x = (static_cast<uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15ULL + place;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ULL;
  return static_cast<float>((x >> 40) & 0xffff);
}
// The result that all ranks must get there.
inline float known_sum(int ranks, size_t place) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += known_value(rank, place);
  return sum;
}

struct WrongSums {
  size_t count = 0;
  size_t first = 0;  // place of the first
};
inline WrongSums find_wrong_sums(const float* sums, const std::vector<float>& expected) {
  WrongSums wrong;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (sums[i] != expected[i] && wrong.count++ == 0) wrong.first = i;
  }
  return wrong;
}

}  // namespace hpctl::agent
