// SPDX-License-Identifier: Apache-2.0
// The optimizer's kernels at every level that this processor has: the bits of a plain loop,
// whatever the length and the alignment, and nothing around is touched. That the formula is right
// is optim_test's.
#include "trainer/kernels/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "trainer/kernels/bf16.h"
#include "trainer/kernels/random_rounding.h"

namespace hpctl {
namespace {

constexpr AdamFactors<float> kFactors = {.beta1 = 0.9F,
                                         .beta2 = 0.95F,
                                         .one_minus_beta1 = 0.1F,
                                         .one_minus_beta2 = 0.05F,
                                         .eps = 1e-8F,
                                         .decay = 0.9999F,
                                         .step_size = 3e-4F,
                                         .inverse_root_correction2 = 1.7F,
                                         .gradient_scale = 0.37F};

// Some are not finite, some vanish.
std::vector<float> wave(size_t count, float rate, float size) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i) * rate) * size;
  if (count > 100) values[97] = std::numeric_limits<float>::infinity();
  if (count > 700) values[699] = 0;
  return values;
}

struct StateOperands {
  explicit StateOperands(size_t count)
      : param(wave(count, 0.7F, 1)),
        exp_avg(wave(count, 0.3F, 0.1F)),
        gradient(wave(count, 1.3F, 1)) {
    for (const float x : wave(count, 0.9F, 0.1F)) exp_avg_sq.push_back(x * x);
    for (size_t i = 0; i < count; ++i) {
      narrow_param.push_back(bf16_of(param[i]));
      narrow_avg.push_back(bf16_of(exp_avg[i]));
      narrow_sq.push_back(bf16_of(exp_avg_sq[i]));
    }
  }

  std::vector<float> param, exp_avg, exp_avg_sq, gradient;
  std::vector<uint16_t> narrow_param, narrow_avg, narrow_sq;
};

// A parameter of type P and moments of type M, with room in front and behind.
template <typename P, typename M>
struct Updated {
  static constexpr size_t kRoom = 80;

  explicit Updated(size_t count)
      : param(count + 2 * kRoom, P{123}), exp_avg(count + 2 * kRoom, M{7}), exp_avg_sq(exp_avg) {}

  AdamTarget<float, M, P> at(size_t offset) {
    return {param.data() + offset, exp_avg.data() + offset, exp_avg_sq.data() + offset};
  }
  // By their bits: of what is not a number, too.
  bool operator==(const Updated& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    return same(param, other.param) && same(exp_avg, other.exp_avg) &&
           same(exp_avg_sq, other.exp_avg_sq);
  }

  std::vector<P> param;
  std::vector<M> exp_avg, exp_avg_sq;
};

// Neither is 0; the places wrap around after 100 elements.
constexpr RandomBits kBits = {.low = 0x1234567U, .high = 0x89abcdefU, .first = 0xffffff9cU};

float wide(float x) { return x; }
float wide(uint16_t x) { return float_of_bf16(x); }
void narrow(float& to, float x, uint32_t) { to = x; }
void narrow(uint16_t& to, float x, uint32_t random) { to = bf16_at_random(x, random & 0xffffU); }

template <typename M, typename P>
void plain_adamw(size_t count, const AdamSource<float, M, P>& from,
                 const AdamTarget<float, M, P>& to) {
  const AdamFactors<float>& f = kFactors;
  for (size_t i = 0; i < count; ++i) {
    const float g = from.gradient[i] * f.gradient_scale;
    const float m = f.beta1 * wide(from.exp_avg[i]) + f.one_minus_beta1 * g;
    const float v = f.beta2 * wide(from.exp_avg_sq[i]) + f.one_minus_beta2 * g * g;
    const uint32_t random = moment_bits(kBits, static_cast<uint32_t>(i));
    narrow(to.exp_avg[i], m, random);
    narrow(to.exp_avg_sq[i], v, random >> 16);
    const float denominator = std::sqrt(v) * f.inverse_root_correction2 + f.eps;
    narrow(to.param[i], wide(from.param[i]) * f.decay - f.step_size * (m / denominator),
           param_bits(random));
  }
}

constexpr size_t kCounts[] = {0, 1, 15, 16, 17, 511, 1023, 1024, 1025, 1541, 4096, 5003};

void update(const OptimizerKernels<float>& kernels, int64_t count, const AdamSource<float>& from,
            const AdamTarget<float>& to) {
  kernels.adamw(kFactors, count, from, to);
}
void update(const OptimizerKernels<float>& kernels, int64_t count,
            const AdamSource<float, uint16_t>& from, const AdamTarget<float, uint16_t>& to) {
  kernels.adamw_bf16(kFactors, kBits, count, from, to);
}
void update(const OptimizerKernels<float>& kernels, int64_t count,
            const AdamSource<float, uint16_t, uint16_t>& from,
            const AdamTarget<float, uint16_t, uint16_t>& to) {
  kernels.adamw_all_bf16(kFactors, kBits, count, from, to);
}

template <typename M, typename P>
void expect_same_bits(size_t count, const AdamSource<float, M, P>& from) {
  for (const size_t offset : {0, 1, 7, 16, 33}) {
    Updated<P, M> expected(count);
    plain_adamw(count, from, expected.at(offset));
    for (const KernelLevel level : kernel_levels()) {
      Updated<P, M> found(count);
      update(optimizer_kernels<float>(level), static_cast<int64_t>(count), from, found.at(offset));
      EXPECT_TRUE(found == expected) << sizeof(P) << " " << sizeof(M) << " " << to_word(level)
                                     << " " << count << " at " << offset;
    }
  }
}

TEST(OptimizerKernels, UpdateHasTheSameBitsAtEveryLevel) {
  for (const size_t count : kCounts) {
    const StateOperands o(count);
    expect_same_bits<float, float>(
        count, {o.param.data(), o.exp_avg.data(), o.exp_avg_sq.data(), o.gradient.data()});
    expect_same_bits<uint16_t, float>(
        count, {o.param.data(), o.narrow_avg.data(), o.narrow_sq.data(), o.gradient.data()});
    expect_same_bits<uint16_t, uint16_t>(
        count, {o.narrow_param.data(), o.narrow_avg.data(), o.narrow_sq.data(), o.gradient.data()});
  }
}

// The bits of every job with state in bf16 depend on these.
TEST(RandomRounding, HashIsForEver) {
  EXPECT_EQ(moment_bits({.low = 0, .high = 0, .first = 0}, 0), 0U);
  EXPECT_EQ(moment_bits({.low = 0x1234567U, .high = 0x89abcdefU, .first = 5}, 7), 0x50d6af62U);
  EXPECT_EQ(moment_bits({.low = 0x1234567U, .high = 0x89abcdefU, .first = 0xffffffffU}, 13),
            0x50d6af62U);
  EXPECT_EQ(param_bits(0x50d6af62U), 0xda74e185U);
}

// All random numbers of 16 bits, once each: the mean is the number itself.
TEST(RandomRounding, MeanIsTheNumber) {
  for (const float value : {1.00390625F, 1.003F, -0.3333333F, 0x1.234568p-130F, 255.9F, 0.0F}) {
    double sum = 0;
    for (uint32_t random = 0; random < 0x10000U; ++random) {
      sum += static_cast<double>(float_of_bf16(bf16_at_random(value, random)));
    }
    EXPECT_EQ(sum / 0x10000, static_cast<double>(value));
  }
}

TEST(RandomRounding, WhatIsNotFiniteStays) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const uint32_t random : {0U, 1U, 0xffffU}) {
    EXPECT_EQ(bf16_at_random(infinity, random), 0x7f80U);
    EXPECT_EQ(bf16_at_random(-infinity, random), 0xff80U);
    EXPECT_EQ(bf16_at_random(nan, random), 0x7fc0U);
    EXPECT_EQ(bf16_at_random(0.0F, random), 0U);
    EXPECT_EQ(bf16_at_random(-2.0F, random), 0xc000U) << "bf16 already";
  }
}

TEST(OptimizerKernels, SumOfSquaresHasTheSameBitsAtEveryLevel) {
  for (const size_t count : kCounts) {
    std::vector<float> values = wave(count + 3, 0.7F, 1e3F);
    if (values.size() > 97) values[97] = 1;
    for (const size_t offset : {0, 1, 3}) {
      double lanes[16] = {};
      for (size_t i = 0; i < count; ++i) {
        const double x = values[offset + i];
        lanes[i % 16] += x * x;
      }
      double expected = 0;
      for (const double lane : lanes) expected += lane;
      for (const KernelLevel level : kernel_levels()) {
        EXPECT_EQ(optimizer_kernels<float>(level).sum_of_squares(values.data() + offset,
                                                                 static_cast<int64_t>(count)),
                  expected)
            << to_word(level) << " " << count << " at " << offset;
      }
    }
  }
}

}  // namespace
}  // namespace hpctl
