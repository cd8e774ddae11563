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
      narrow_avg.push_back(bf16_of(exp_avg[i]));
      narrow_sq.push_back(bf16_of(exp_avg_sq[i]));
    }
  }

  std::vector<float> param, exp_avg, exp_avg_sq, gradient;
  std::vector<uint16_t> narrow_avg, narrow_sq;
};

// Three results of one type each, with room in front and behind.
template <typename M>
struct Updated {
  static constexpr size_t kRoom = 80;
  static constexpr float kUntouched = 123.5F;

  explicit Updated(size_t count)
      : param(count + 2 * kRoom, kUntouched),
        exp_avg(count + 2 * kRoom, M{7}),
        exp_avg_sq(exp_avg) {}

  AdamTarget<float, M> at(size_t offset) {
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

  std::vector<float> param;
  std::vector<M> exp_avg, exp_avg_sq;
};

float wide(float x) { return x; }
float wide(uint16_t x) { return float_of_bf16(x); }
void narrow(float& to, float x) { to = x; }
void narrow(uint16_t& to, float x) { to = bf16_of(x); }

template <typename M>
void plain_adamw(size_t count, const AdamSource<float, M>& from, const AdamTarget<float, M>& to) {
  const AdamFactors<float>& f = kFactors;
  for (size_t i = 0; i < count; ++i) {
    const float g = from.gradient[i] * f.gradient_scale;
    const float m = f.beta1 * wide(from.exp_avg[i]) + f.one_minus_beta1 * g;
    const float v = f.beta2 * wide(from.exp_avg_sq[i]) + f.one_minus_beta2 * g * g;
    narrow(to.exp_avg[i], m);
    narrow(to.exp_avg_sq[i], v);
    const float denominator = std::sqrt(v) * f.inverse_root_correction2 + f.eps;
    to.param[i] = from.param[i] * f.decay - f.step_size * (m / denominator);
  }
}

constexpr size_t kCounts[] = {0, 1, 15, 16, 17, 511, 1023, 1024, 1025, 1541, 4096, 5003};

TEST(OptimizerKernels, UpdateHasTheSameBitsAtEveryLevel) {
  for (const size_t count : kCounts) {
    const StateOperands o(count);
    const AdamSource<float> from = {o.param.data(), o.exp_avg.data(), o.exp_avg_sq.data(),
                                    o.gradient.data()};
    const AdamSource<float, uint16_t> from_bf16 = {o.param.data(), o.narrow_avg.data(),
                                                   o.narrow_sq.data(), o.gradient.data()};
    for (const size_t offset : {0, 1, 7, 16, 33}) {
      Updated<float> expected(count);
      Updated<uint16_t> expected_bf16(count);
      plain_adamw(count, from, expected.at(offset));
      plain_adamw(count, from_bf16, expected_bf16.at(offset));
      for (const KernelLevel level : kernel_levels()) {
        Updated<float> found(count);
        Updated<uint16_t> found_bf16(count);
        const OptimizerKernels<float>& kernels = optimizer_kernels<float>(level);
        kernels.adamw(kFactors, static_cast<int64_t>(count), from, found.at(offset));
        kernels.adamw_bf16(kFactors, static_cast<int64_t>(count), from_bf16, found_bf16.at(offset));
        EXPECT_TRUE(found == expected) << to_word(level) << " " << count << " at " << offset;
        EXPECT_TRUE(found_bf16 == expected_bf16)
            << "bf16, " << to_word(level) << " " << count << " at " << offset;
      }
    }
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
