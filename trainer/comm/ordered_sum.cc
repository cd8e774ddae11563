// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/ordered_sum.h"

#include <algorithm>
#include <array>

#include "common/base/check.h"

namespace hpctl {

namespace {

// A part of the sum that stays in the first-level cache while all parts are added to it.
constexpr size_t kCacheFloats = 4096;

}  // namespace

void sum_in_order(std::span<const float* const> parts, size_t count, float* output) {
  HP_CHECK(parts.size() >= 2);
  std::array<float, kCacheFloats> sum;
  for (size_t begin = 0; begin < count; begin += kCacheFloats) {
    const size_t n = std::min(kCacheFloats, count - begin);
    const float* first = parts[0] + begin;
    const float* second = parts[1] + begin;
    for (size_t i = 0; i < n; ++i) sum[i] = first[i] + second[i];
    for (size_t p = 2; p < parts.size(); ++p) {
      const float* next = parts[p] + begin;
      for (size_t i = 0; i < n; ++i) sum[i] += next[i];
    }
    // Complete before it is stored: `output` may be one of the parts.
    std::copy_n(sum.data(), n, output + begin);
  }
}

}  // namespace hpctl
