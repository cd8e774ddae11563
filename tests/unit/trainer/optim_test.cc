// SPDX-License-Identifier: Apache-2.0
// Optimizer, schedule, clipping, initial values, rounding: against hand computation and theory.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "trainer/model/initial_values.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/optim/schedule.h"
#include "trainer/parallel/bf16_rounding.h"

namespace hpctl {
namespace {

// One element through `steps` updates in double precision, from the formulas of adamw.h.
struct ReferenceAdam {
  double p, m = 0, v = 0;
  void step(const OptimizerSpec& spec, int t, double lr, double g, bool decayed) {
    m = spec.beta1 * m + (1 - spec.beta1) * g;
    v = spec.beta2 * v + (1 - spec.beta2) * g * g;
    if (decayed) p *= 1 - lr * spec.weight_decay;
    p -= lr / (1 - std::pow(spec.beta1, t)) * m /
         (std::sqrt(v) / std::sqrt(1 - std::pow(spec.beta2, t)) + spec.eps);
  }
};

class Adam : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Decay, Adam, ::testing::Bool());

TEST_P(Adam, FollowsTheFormulas) {
  const bool decayed = GetParam();
  const OptimizerSpec spec;
  const std::array<double, 5> start = {1.0, -0.5, 0.02, 3.0, 0.0};
  std::vector<ReferenceAdam> expected;
  std::vector<float> p;
  for (const double x : start) {
    expected.push_back({x});
    p.push_back(static_cast<float>(x));
  }
  std::vector<float> m(5, 0.0F);
  std::vector<float> v(5, 0.0F);
  std::vector<float> next_p(5), next_m(5), next_v(5);
  for (int t = 1; t <= 20; ++t) {
    const double lr = 1e-3 * t;
    std::vector<float> gradient;
    for (size_t i = 0; i < start.size(); ++i) {
      const double g = std::sin(t + static_cast<double>(i));
      gradient.push_back(static_cast<float>(g));
      expected[i].step(spec, t, lr, 0.5 * static_cast<double>(gradient[i]), decayed);
    }
    adamw(AdamStep(spec, t, lr, 0.5), decayed, 5, {p.data(), m.data(), v.data(), gradient.data()},
          {next_p.data(), next_m.data(), next_v.data()});
    p.swap(next_p);
    m.swap(next_m);
    v.swap(next_v);
  }
  for (size_t i = 0; i < start.size(); ++i) {
    EXPECT_NEAR(p[i], expected[i].p, 2e-6) << i;
    EXPECT_NEAR(m[i], expected[i].m, 1e-6) << i;
    EXPECT_NEAR(v[i], expected[i].v, 1e-6) << i;
  }
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
  const int n = 1000;
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
}

TEST(GradNorm, SumOfSquaresInDoublePrecision) {
  for (const int64_t n : {0, 1, 15, 16, 17, 1000}) {
    std::vector<float> x(static_cast<size_t>(n));
    double expected = 0;
    for (int64_t i = 0; i < n; ++i) {
      x[i] = 1.0F + static_cast<float>(i) * 1e-4F;
      expected += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    EXPECT_NEAR(sum_of_squares(x.data(), n), expected, 1e-12 * (1 + expected)) << n;
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
  EXPECT_DOUBLE_EQ(learning_rate(spec, 1), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 10), 1.0);
  // Half-way of the 101 virtual steps behind the warm-up lies between steps 60 and 61.
  EXPECT_NEAR((learning_rate(spec, 60) + learning_rate(spec, 61)) / 2, 0.55, 1e-9);
  EXPECT_GT(learning_rate(spec, 110), 0.1);
  EXPECT_NEAR(learning_rate(spec, 110), 0.1, 1e-3);
  for (uint64_t k = 11; k < 110; ++k) {
    EXPECT_GT(learning_rate(spec, k), learning_rate(spec, k + 1));
  }
}

TEST(Schedule, NeverZeroBeforeTheEnd) {
  TrainSpec spec;
  spec.steps = 5;
  spec.optimizer.lr = 1.0;
  spec.schedule.min_lr_ratio = 0;
  EXPECT_GT(learning_rate(spec, 5), 0.0);
  spec.schedule.warmup_steps = 8;  // longer than the job
  EXPECT_DOUBLE_EQ(learning_rate(spec, 5), 5.0 / 8.0);
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

TEST(InitialValues, QuantileInvertsTheNormalDistribution) {
  for (const double p : {1e-12, 1e-5, 0.02, 0.0243, 0.3, 0.5, 0.77, 0.976, 0.9999}) {
    const double z = normal_quantile(p);
    EXPECT_NEAR(0.5 * std::erfc(-z / std::sqrt(2.0)), p, 2e-9 * (1 + z * z) * p) << p;
  }
}

TEST(InitialValues, DoNotDependOnTheWorld) {
  const ModelSpec model = *model_preset("tiny");
  for (const Block& block : llama_layout(model)) {
    std::vector<float> whole(block.numel);
    fill_initial_values(model, block, 7, {0, block.numel}, whole.data());
    for (const int32_t world : {2, 3, 8}) {
      const int64_t capacity = shard_capacity(block.numel, world);
      std::vector<float> all(capacity * world, -1.0F);
      for (int32_t r = 0; r < world; ++r) {
        fill_initial_values(model, block, 7, {capacity * r, capacity * (r + 1)},
                            all.data() + capacity * r);
      }
      for (int64_t i = 0; i < block.numel; ++i) ASSERT_EQ(all[i], whole[i]);
      for (size_t i = block.numel; i < all.size(); ++i) ASSERT_EQ(all[i], 0.0F) << "padding";
    }
  }
}

TEST(InitialValues, FollowTheRules) {
  const ModelSpec model = *model_preset("debugmodel");
  const std::vector<Block> blocks = llama_layout(model);
  const auto check = [&](size_t b, const std::string& suffix, double expected_std, double most) {
    std::vector<float> values(blocks[b].numel);
    fill_initial_values(model, blocks[b], 1, {0, blocks[b].numel}, values.data());
    for (const TensorSlot& tensor : blocks[b].tensors) {
      if (!tensor.name.ends_with(suffix)) continue;
      double sum = 0;
      double squares = 0;
      double largest = 0;
      for (int64_t i = 0; i < tensor.numel; ++i) {
        const double x = values[tensor.offset + i];
        sum += x;
        squares += x * x;
        largest = std::max(largest, std::abs(x));
      }
      const auto n = static_cast<double>(tensor.numel);
      EXPECT_NEAR(sum / n, 0, 5 * expected_std / std::sqrt(n)) << tensor.name;
      EXPECT_NEAR(std::sqrt(squares / n), expected_std, 0.01 * expected_std) << tensor.name;
      EXPECT_LE(largest, most) << tensor.name;
      return;
    }
    FAIL() << "no tensor " << suffix;
  };
  check(0, "embed_tokens.weight", 1.0, 7);
  check(1, "q_proj.weight", 0.02, 0.14);
  check(1, "down_proj.weight", 0.02 / std::sqrt(2.0), 0.1);
  check(6, "o_proj.weight", 0.02 / std::sqrt(12.0), 0.05);
  // Truncation at three standard deviations narrows the distribution by 0.98658.
  check(7, "lm_head.weight", 0.98658 / 16.0, 3.0 / 16.0);
  std::vector<float> head(blocks[7].numel);
  fill_initial_values(model, blocks[7], 1, {0, blocks[7].numel}, head.data());
  EXPECT_EQ(head[0], 1.0F) << "norms start at one";
}

TEST(InitialValues, SeedsAndTensorsDiffer) {
  const ModelSpec model = *model_preset("tiny");
  const Block block = llama_layout(model)[1];
  std::vector<float> a(block.numel), b(block.numel);
  fill_initial_values(model, block, 1, {0, block.numel}, a.data());
  fill_initial_values(model, block, 2, {0, block.numel}, b.data());
  EXPECT_NE(a, b);
  const int64_t k = block.tensors[2].offset;
  const int64_t v = block.tensors[3].offset;
  EXPECT_NE(a[k], a[v]);
}

}  // namespace
}  // namespace hpctl
