// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/sample_order.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"
#include "common/base/rng.h"

namespace hpctl {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t key) : size_(size) {
  HP_CHECK(size >= 1);
  const auto bits = static_cast<uint32_t>(std::bit_width(size - 1));
  half_bits_ = std::max(1U, (bits + 1) / 2);
  for (size_t r = 0; r < round_keys_.size(); ++r) round_keys_[r] = mix64(key + (r + 1) * kGolden);
}

uint64_t Permutation::feistel(uint64_t value) const {
  const uint64_t mask = (1ULL << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t round_key : round_keys_) {
    const uint64_t next = left ^ (mix64(right + round_key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  HP_CHECK(index < size_);
  uint64_t value = feistel(index);
  while (value >= size_) value = feistel(value);
  return value;
}

uint64_t window_of_sample(uint64_t seed, uint64_t windows, uint64_t sample) {
  const uint64_t epoch = sample / windows;
  const uint64_t key = mix64(mix64(seed + kGolden) + epoch);
  return Permutation(windows, key)(sample % windows);
}

}  // namespace hpctl
