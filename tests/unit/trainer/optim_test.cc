// SPDX-License-Identifier: Apache-2.0
// Optimizer, schedule, clipping, rounding: against hand computation and theory.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "trainer/data/batch_ramp.h"
#include "trainer/kernels/bf16_rounding.h"
#include "trainer/kernels/random_rounding.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/optim/loss_scaler.h"
#include "trainer/optim/schedule.h"

namespace hpctl {
namespace {

// One element through one update in double precision, from the formulas of adamw.h, and what its
// errors are relative to (optimizer.h).
struct ReferenceAdam {
  double p, m, v;
  double p_size = 0, m_size = 0;
  void step(const OptimizerSpec& spec, int t, double lr, double g, bool decayed) {
    m_size = spec.beta1 * std::abs(m) + (1 - spec.beta1) * std::abs(g);
    m = spec.beta1 * m + (1 - spec.beta1) * g;
    v = spec.beta2 * v + (1 - spec.beta2) * g * g;
    if (decayed) p *= 1 - lr * spec.weight_decay;
    const double rate = lr / (1 - std::pow(spec.beta1, t)) /
                        (std::sqrt(v) / std::sqrt(1 - std::pow(spec.beta2, t)) + spec.eps);
    p_size = std::abs(p) + rate * m_size;
    p -= rate * m;
  }
};

class Adam : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Decay, Adam, ::testing::Bool());

TEST_P(Adam, FollowsTheFormulas) {
  const bool decayed = GetParam();
  const OptimizerSpec spec;
  constexpr double kScale = 0.37;
  std::vector<float> p = {1.0F, -0.5F, 0.02F, 3.0F, 0.0F};
  std::vector<float> m(5, 0.0F);
  std::vector<float> v(5, 0.0F);
  std::vector<float> next_p(5), next_m(5), next_v(5);
  for (int t = 1; t <= 20; ++t) {
    const double lr = 1e-3 * t;
    std::vector<float> gradient;
    for (size_t i = 0; i < p.size(); ++i) {
      gradient.push_back(static_cast<float>(std::sin(t + static_cast<double>(i))));
    }
    adamw(AdamStep(spec, t, lr, kScale), decayed, 5,
          {p.data(), m.data(), v.data(), gradient.data()},
          {next_p.data(), next_m.data(), next_v.data()});
    for (size_t i = 0; i < p.size(); ++i) {
      ReferenceAdam expected = {p[i], m[i], v[i]};
      expected.step(spec, t, lr, kScale * static_cast<double>(gradient[i]), decayed);
      EXPECT_NEAR(next_p[i], expected.p, kAdamErrorFp32 * expected.p_size) << t << " " << i;
      EXPECT_NEAR(next_m[i], expected.m, kAdamErrorFp32 * expected.m_size) << t << " " << i;
      EXPECT_NEAR(next_v[i], expected.v, kAdamErrorFp32 * expected.v) << t << " " << i;
    }
    p.swap(next_p);
    m.swap(next_m);
    v.swap(next_v);
  }
}

TEST(Adam, Bf16MomentsAreTheRoundedOnes) {
  const std::vector<float> p = {1.0F, -0.5F}, m = {0.25F, -0.5F}, v = {0.5F, 0.125F};
  const std::vector<float> g = {0.3F, 0.7F};
  std::vector<float> wide_p(2), wide_m(2), wide_v(2), narrow_p(2);
  std::vector<uint16_t> m16(2), v16(2), next_m(2), next_v(2);
  round_to_bf16(m.data(), m16.data(), 2);
  round_to_bf16(v.data(), v16.data(), 2);
  const AdamStep step(OptimizerSpec{}, 3, 1e-2, 1.0);
  const RandomBits bits = random_bits(1, step, 2, 3);
  adamw(step, true, 2, {p.data(), m.data(), v.data(), g.data()},
        {wide_p.data(), wide_m.data(), wide_v.data()});
  adamw(step, true, bits, 2,
        AdamSource<float, uint16_t>{p.data(), m16.data(), v16.data(), g.data()},
        AdamTarget<float, uint16_t>{narrow_p.data(), next_m.data(), next_v.data()});
  EXPECT_EQ(narrow_p, wide_p) << "the moments before the step were exact in bf16";
  for (size_t i = 0; i < 2; ++i) {
    const uint32_t random = moment_bits(bits, static_cast<uint32_t>(i));
    EXPECT_EQ(next_m[i], bf16_at_random(wide_m[i], random & 0xffffU));
    EXPECT_EQ(next_v[i], bf16_at_random(wide_v[i], random >> 16));
    EXPECT_NE(float_of_bf16(next_m[i]), wide_m[i]) << "the test must round";
  }
}

// State in bf16 of elements that all have the same parameter, moments and gradient.
struct NarrowState {
  explicit NarrowState(size_t count, float param, float exp_avg, float exp_avg_sq)
      : p(count, bf16_of(param)),
        m(count, bf16_of(exp_avg)),
        v(count, bf16_of(exp_avg_sq)),
        next_p(count),
        next_m(count),
        next_v(count) {}

  void take(const AdamStep& step, float gradient) {
    const std::vector<float> gradients(p.size(), gradient);
    adamw(step, false, random_bits(9, step, 1, 0), static_cast<int64_t>(p.size()),
          AdamSource<float, uint16_t, uint16_t>{p.data(), m.data(), v.data(), gradients.data()},
          AdamTarget<float, uint16_t, uint16_t>{next_p.data(), next_m.data(), next_v.data()});
    p.swap(next_p);
    m.swap(next_m);
    v.swap(next_v);
  }

  static double mean(const std::vector<uint16_t>& values) {
    double sum = 0;
    for (const uint16_t value : values) sum += static_cast<double>(float_of_bf16(value));
    return sum / static_cast<double>(values.size());
  }

  std::vector<uint16_t> p, m, v, next_p, next_m, next_v;
};

// Rounded to nearest the second moment would stay at 1: a step changes it by less than a quarter of
// a unit in its last place. Rounded stochastically it is a martingale around the moment in fp32. A
// step's rounding has a variance of at most 2^-16 of the square of the moment (a quarter of a unit
// in the last place, 2^-7 at most, squared), so after 1,000 steps the mean of 4,096 elements has a
// standard deviation of at most sqrt(1000 / 4096) 2^-8, 0.2 % of itself. Five of those: 1 %.
TEST(Adam, Bf16SecondMomentDecaysAsInFp32) {
  OptimizerSpec spec;
  spec.beta2 = 0.999;
  NarrowState state(4096, 1, 0, 1);
  for (int t = 1; t <= 1000; ++t) {
    state.take(AdamStep(spec, t, 0, 1), 0);
    if (t % 250 != 0) continue;
    const double expected = std::pow(0.999, t);
    EXPECT_NEAR(NarrowState::mean(state.v), expected, 0.01 * expected) << t;
  }
}

// And it grows: to nearest it would stop where a step adds less than half a unit.
TEST(Adam, Bf16SecondMomentGrowsAsInFp32) {
  OptimizerSpec spec;
  spec.beta2 = 0.999;
  NarrowState state(4096, 1, 0, 0);
  for (int t = 1; t <= 3000; ++t) state.take(AdamStep(spec, t, 0, 1), 1);
  const double expected = 1 - std::pow(0.999, 3000);
  EXPECT_NEAR(NarrowState::mean(state.v), expected, 0.01 * expected);
}

// Steps of 1e-4 below 1, where a unit in the last place is 2^-8: to nearest it would not move. 500
// steps have a standard deviation of sqrt(500 * 0.0256 * 0.9744) 2^-8, and the mean of 65,536
// elements has 5.4e-5.
TEST(Adam, Bf16ParameterMovesAsInFp32) {
  NarrowState state(65536, 1, 1, 1);
  for (int t = 1; t <= 500; ++t) {
    // With a gradient of 1 for ever a step moves by lr.
    state.take(AdamStep(OptimizerSpec{}, 1000 + t, 1e-4, 1), 1);
    state.m.assign(state.m.size(), bf16_of(1));
    state.v.assign(state.v.size(), bf16_of(1));
  }
  EXPECT_NEAR(NarrowState::mean(state.p), 1 - 500 * 1e-4, 5 * 5.4e-5);
}

// Neighbours, steps, blocks and seeds have bits of their own, and the three numbers of an element.
TEST(Adam, RandomBitsAreIndependent) {
  const AdamStep step(OptimizerSpec{}, 3, 1e-2, 1.0);
  const auto bits_of = [](uint64_t seed, const AdamStep& at, size_t block) {
    const RandomBits bits = random_bits(seed, at, block, 0);
    std::vector<double> values;
    for (uint32_t i = 0; i < 8192; ++i) {
      const uint32_t random = moment_bits(bits, i);
      for (const uint32_t part : {random & 0xffffU, random >> 16, param_bits(random) & 0xffffU}) {
        values.push_back(part / 65535.0 - 0.5);
      }
    }
    return values;
  };
  // Of uniform numbers the variance is 1/12; 24,576 products have a standard deviation of
  // 1/12 / sqrt(24576).
  const auto covariance = [](const std::vector<double>& a, const std::vector<double>& b,
                             size_t shift) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[(i + shift) % b.size()];
    return sum / static_cast<double>(a.size());
  };
  const double bound = 4.0 / 12 / std::sqrt(24576.0);
  const std::vector<double> some = bits_of(1, step, 0);
  EXPECT_NEAR(covariance(some, some, 0), 1.0 / 12, bound);
  for (const size_t shift : {1, 2, 3, 6, 24, 48}) {
    EXPECT_NEAR(covariance(some, some, shift), 0, bound) << shift;
  }
  EXPECT_NEAR(covariance(some, bits_of(1, step, 1), 0), 0, bound);
  EXPECT_NEAR(covariance(some, bits_of(2, step, 0), 0), 0, bound);
  const AdamStep next(OptimizerSpec{}, 4, 1e-2, 1.0);
  EXPECT_NEAR(covariance(some, bits_of(1, next, 0), 0), 0, bound);
}

TEST(Adam, PaddingStaysZero) {
  const std::vector<float> zero(16, 0.0F);
  std::vector<float> p(16, 1.0F), m(16, 1.0F), v(16, 1.0F);
  adamw(AdamStep(OptimizerSpec{}, 1, 1e-3, 1.0), true, 16,
        {zero.data(), zero.data(), zero.data(), zero.data()}, {p.data(), m.data(), v.data()});
  EXPECT_EQ(p, zero);
  EXPECT_EQ(m, zero);
  EXPECT_EQ(v, zero);
}

TEST(Adam, BitsDoNotDependOnHowARangeIsCut) {
  const int n = 3000;
  std::vector<float> p(n), m(n), v(n), g(n);
  for (int i = 0; i < n; ++i) {
    p[i] = std::sin(i * 0.7F);
    m[i] = std::cos(i * 0.3F) * 0.1F;
    v[i] = std::abs(std::sin(i * 0.9F)) * 0.01F;
    g[i] = std::sin(i * 1.3F);
  }
  const AdamStep step(OptimizerSpec{}, 7, 3e-4, 0.37);
  std::vector<float> whole(3 * n), parts(3 * n);
  const auto run = [&](std::vector<float>& out, int begin, int count) {
    adamw(step, true, count, {&p[begin], &m[begin], &v[begin], &g[begin]},
          {&out[begin], &out[n + begin], &out[2 * n + begin]});
  };
  run(whole, 0, n);
  for (int i = 0; i < n; ++i) run(parts, i, 1);
  EXPECT_EQ(whole, parts);

  std::vector<uint16_t> p16(n), m16(n), v16(n), whole16(3 * n), parts16(3 * n);
  round_to_bf16(p.data(), p16.data(), n);
  round_to_bf16(m.data(), m16.data(), n);
  round_to_bf16(v.data(), v16.data(), n);
  const auto run_narrow = [&](std::vector<uint16_t>& out, int begin, int count) {
    adamw(step, true, random_bits(7, step, 2, 100 + begin), count,
          AdamSource<float, uint16_t, uint16_t>{&p16[begin], &m16[begin], &v16[begin], &g[begin]},
          AdamTarget<float, uint16_t, uint16_t>{&out[begin], &out[n + begin], &out[2 * n + begin]});
  };
  run_narrow(whole16, 0, n);
  for (int i = 0; i < n; ++i) run_narrow(parts16, i, 1);
  EXPECT_EQ(whole16, parts16);
}

TEST(GradNorm, SumOfSquaresInDoublePrecision) {
  for (const int64_t n : {0, 1, 15, 16, 17, 1000, 100'000}) {
    std::vector<float> x(static_cast<size_t>(n));
    long double expected = 0;
    for (int64_t i = 0; i < n; ++i) {
      x[i] = 1.0F + static_cast<float>(i) * 1e-4F;
      expected += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    const long double error = sum_of_squares(x.data(), n) - expected;
    EXPECT_LE(std::abs(error), sum_of_squares_error(n) * expected) << n;
  }
}

TEST(GradNorm, ClipFactor) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_NEAR(clip_factor(4.0, 1.0), 0.25, 1e-6);
  EXPECT_EQ(clip_factor(1e9, 0.0), 1.0) << "0 turns clipping off";
}

TEST(Schedule, WarmUpThenCosineToTheFloor) {
  TrainSpec spec;
  spec.steps = 110;
  spec.optimizer.lr = 1.0;
  spec.schedule.warmup_steps = 10;
  spec.schedule.min_lr_ratio = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate(spec, 1, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 10, 0), 1.0);
  // Half-way of the 101 virtual steps behind the warm-up lies between steps 60 and 61.
  EXPECT_NEAR((learning_rate(spec, 60, 0) + learning_rate(spec, 61, 0)) / 2, 0.55, 1e-9);
  EXPECT_GT(learning_rate(spec, 110, 0), 0.1);
  EXPECT_NEAR(learning_rate(spec, 110, 0), 0.1, 1e-3);
  for (uint64_t k = 11; k < 110; ++k) {
    EXPECT_GT(learning_rate(spec, k, 0), learning_rate(spec, k + 1, 0));
  }
}

TEST(Schedule, NeverZeroBeforeTheEnd) {
  TrainSpec spec;
  spec.steps = 5;
  spec.optimizer.lr = 1.0;
  spec.schedule.min_lr_ratio = 0;
  EXPECT_GT(learning_rate(spec, 5, 0), 0.0);
  spec.schedule.warmup_steps = 8;  // longer than the job
  EXPECT_DOUBLE_EQ(learning_rate(spec, 5, 0), 5.0 / 8.0);
}

TEST(Schedule, LinearAndConstant) {
  TrainSpec spec;
  spec.steps = 100;
  spec.optimizer.lr = 2.0;
  spec.schedule.min_lr_ratio = 0.5;
  spec.schedule.name = ScheduleShape::kConstant;
  EXPECT_DOUBLE_EQ(learning_rate(spec, 1, 0), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 100, 0), 2.0);
  spec.schedule.name = ScheduleShape::kLinear;
  spec.schedule.warmup_steps = 1;
  EXPECT_DOUBLE_EQ(learning_rate(spec, 1, 0), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 51, 0), 2.0 * (0.5 + 0.5 * 0.5));
  EXPECT_DOUBLE_EQ(learning_rate(spec, 100, 0), 2.0 * (0.5 + 0.5 * 0.01));
}

TEST(Schedule, WsdStaysAndThenDecays) {
  TrainSpec spec;
  spec.steps = 100;
  spec.optimizer.lr = 1.0;
  spec.schedule = {
      .name = ScheduleShape::kWsd, .warmup_steps = 10, .decay_steps = 24, .min_lr_ratio = 0};
  for (const uint64_t k : {10, 11, 50, 76}) EXPECT_DOUBLE_EQ(learning_rate(spec, k, 0), 1.0) << k;
  const std::vector<std::pair<DecayShape, double>> quarter = {
      {DecayShape::kLinear, 0.8},
      {DecayShape::kSqrt, 1 - std::sqrt(0.2)},
      {DecayShape::kCosine, (1 + std::cos(M_PI / 5)) / 2}};
  for (const auto& [decay, expected] : quarter) {
    spec.schedule.decay = decay;
    EXPECT_NEAR(learning_rate(spec, 81, 0), expected, 1e-12) << to_word(decay);
    EXPECT_GT(learning_rate(spec, 100, 0), 0.0) << to_word(decay);
  }
}

// Megatron-LM's --lr-decay-iters: the rate is lowest before the job ends.
TEST(Schedule, CosineAndLinearEndAfterDecaySteps) {
  TrainSpec spec;
  spec.steps = 100;
  spec.optimizer.lr = 1.0;
  spec.schedule = {.warmup_steps = 10, .decay_steps = 39, .min_lr_ratio = 0.25};
  for (const ScheduleShape name : {ScheduleShape::kCosine, ScheduleShape::kLinear}) {
    spec.schedule.name = name;
    EXPECT_NEAR(learning_rate(spec, 30, 0), 0.25 + 0.75 * 0.5, 1e-12) << to_word(name);
    EXPECT_GT(learning_rate(spec, 49, 0), 0.25) << to_word(name);
    EXPECT_DOUBLE_EQ(learning_rate(spec, 50, 0), 0.25) << to_word(name);
    EXPECT_DOUBLE_EQ(learning_rate(spec, 100, 0), 0.25) << to_word(name);
  }
  spec.schedule.decay_steps = 90;  // all that there is: as 0
  const double given = learning_rate(spec, 70, 0);
  spec.schedule.decay_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(spec, 70, 0), given);
}

TEST(Schedule, CountsSamplesWhereItShould) {
  TrainSpec spec;
  spec.steps = 20;
  spec.batch.global = 10;
  spec.batch.ramp = {{.samples = 20, .global = 5}};
  ASSERT_EQ(samples_after(spec.batch, 20), 180U);
  spec.optimizer.lr = 1.0;
  spec.schedule = {.name = ScheduleShape::kLinear,
                   .unit = ScheduleUnit::kSamples,
                   .warmup_steps = 40,
                   .min_lr_ratio = 0};
  EXPECT_DOUBLE_EQ(learning_rate(spec, 1, 5), 0.125);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 6, 40), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 13, 115), 0.5) << "half of the 150 that follow";
  EXPECT_DOUBLE_EQ(learning_rate(spec, 20, 180), 10.0 / 150.0);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 20, 1000), 0.0) << "skipped samples push beyond the end";
}

TEST(LossScale, HalvesOnOverflowAndDoublesAfterGoodSteps) {
  TrainSpec train;
  EXPECT_EQ(first_loss_scale(train).scale, 0U) << "bf16 needs none";
  train.precision = Precision::kFp16;
  train.loss_scale = {.initial = 8, .growth_interval = 3, .hysteresis = 2, .min = 4};
  const LossScaleSpec& spec = train.loss_scale;
  LossScaleRecord record = first_loss_scale(train);
  EXPECT_EQ(record, (LossScaleRecord{.scale = 8, .good_steps = 0, .hysteresis_left = 2}));
  remember_good_step(spec, record);
  EXPECT_TRUE(lower_loss_scale(spec, record));
  EXPECT_EQ(record, (LossScaleRecord{8, 0, 1, 1})) << "the first overflow is forgiven";
  EXPECT_TRUE(lower_loss_scale(spec, record));
  EXPECT_EQ(record, (LossScaleRecord{4, 0, 1, 2}));
  EXPECT_FALSE(lower_loss_scale(spec, record)) << "the scale is not to blame";
  EXPECT_EQ(record, (LossScaleRecord{4, 0, 1, 2}));
  for (int i = 0; i < 3; ++i) remember_good_step(spec, record);
  EXPECT_EQ(record, (LossScaleRecord{8, 0, 2, 2})) << "and forgiving again";
  record.scale = kMaxLossScale;
  for (int i = 0; i < 3; ++i) remember_good_step(spec, record);
  EXPECT_EQ(record.scale, static_cast<uint64_t>(kMaxLossScale));
}

TEST(LossScale, OnlyAGradientOverflows) {
  const LossScaleRecord scaled = {.scale = 8};
  EXPECT_FALSE(is_overflow(scaled, 2.0, 1e30));
  EXPECT_TRUE(is_overflow(scaled, 2.0, HUGE_VAL));
  EXPECT_TRUE(is_overflow(scaled, 2.0, std::nan("")));
  EXPECT_FALSE(is_overflow(scaled, std::nan(""), std::nan(""))) << "no scale makes the loss finite";
  EXPECT_FALSE(is_overflow({}, 2.0, HUGE_VAL)) << "bf16 and fp32";
}

TEST(Ramp, DependsOnTheCursorAlone) {
  BatchSpec batch;
  batch.global = 16;
  batch.ramp = {{.samples = 10, .global = 4}, {.samples = 30, .global = 8}};
  std::vector<uint64_t> sizes;
  uint64_t cursor = 0;
  for (uint64_t step = 0; step < 8; ++step) {
    EXPECT_EQ(samples_after(batch, step), cursor);
    sizes.push_back(global_batch(batch, cursor));
    cursor += sizes.back();
  }
  EXPECT_EQ(sizes, (std::vector<uint64_t>{4, 4, 4, 8, 8, 8, 16, 16}));
}

TEST(Bf16, RoundsToNearestEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto rounded = [](float x) {
    uint16_t bits = 0;
    round_to_bf16(&x, &bits, 1);
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  };
  EXPECT_EQ(rounded(1.0F), 1.0F);
  EXPECT_EQ(rounded(1.0F + 0x1p-8F), 1.0F) << "tie to even, down";
  EXPECT_EQ(rounded(1.0F + 0x1p-7F + 0x1p-8F), 1.0F + 0x1p-6F) << "tie to even, up";
  EXPECT_EQ(rounded(1.0F + 0x1p-8F + 0x1p-20F), 1.0F + 0x1p-7F);
  EXPECT_EQ(rounded(-infinity), -infinity);
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), infinity);
  EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0x7f800001U))));
}

}  // namespace
}  // namespace hpctl
