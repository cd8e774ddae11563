// SPDX-License-Identifier: Apache-2.0
// The kernels of a GPU on a machine without one: the real text of trainer/kernels/device and the
// real launches, over stubs of NVRTC and of the driver that run a block's threads as fibers
// (device_language.h). Results against plain ATen in fp64, their gradients against ATen's and
// against finite differences; each in both orders of the threads, which must not change a bit.
#include "trainer/arch/device_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/trainer/stub_kernels.h"
#include "trainer/arch/targets.h"

namespace hpctl {
namespace {

using at::Tensor;
using testing::in_both_orders;
using testing::stub_kernels;
using Operands = std::vector<Tensor>;
// Several results make one row.
using Computation = std::function<Tensor(const Operands&)>;

constexpr double kEpsilon = 1e-5;

// Largest difference, in units of the largest expected number; not a number where one is.
double apart(const Tensor& found, const Tensor& expected) {
  const Tensor difference = (found.to(at::kDouble) - expected).abs();
  if (difference.isnan().any().item<bool>()) return std::numeric_limits<double>::quiet_NaN();
  return (difference.max() / expected.abs().max()).item<double>();
}

struct Bound {
  at::ScalarType type;
  double largest;
};
// Half a unit in the last place of the largest number, where it is rounded once; sums of fp32.
const std::vector<Bound> kBounds = {
    {at::kFloat, 2e-6}, {at::kBFloat16, 3.95e-3}, {at::kHalf, 4.95e-4}};

// The result, and the gradients of what is floating where that of the result is `gradient`.
Operands results_of(const Computation& computation, const Operands& operands,
                    const Tensor& gradient) {
  Operands leaves;
  for (const Tensor& operand : operands) {
    const Tensor leaf = operand.detach().clone();
    leaves.push_back(leaf.is_floating_point() ? leaf.requires_grad_() : leaf);
  }
  const Tensor result = computation(leaves);
  result.backward(gradient);
  Operands results = {result.detach()};
  for (const Tensor& leaf : leaves) {
    if (leaf.requires_grad()) results.push_back(leaf.grad());
  }
  return results;
}

Operands in_type(const Operands& operands, at::ScalarType type) {
  Operands made;
  for (const Tensor& x : operands) made.push_back(x.is_floating_point() ? x.to(type) : x);
  return made;
}

void expect_definition(const std::string& what, const Computation& definition,
                       const Computation& kernel, const Operands& operands,
                       const std::vector<Bound>& bounds = kBounds) {
  at::manual_seed(5);
  const Tensor like = definition(in_type(operands, at::kDouble));
  const Tensor direction = at::randn(like.sizes());
  for (const auto& [type, largest] : bounds) {
    const Operands given = in_type(operands, type);
    const Tensor gradient = direction.to(type);
    const Operands expected =
        results_of(definition, in_type(given, at::kDouble), gradient.to(at::kDouble));
    const std::vector<Operands> found =
        in_both_orders([&] { return results_of(kernel, given, gradient); });
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(found[0][i].scalar_type(), type);
      EXPECT_LT(apart(found[0][i], expected[i]), largest) << what << " " << type << " " << i;
      EXPECT_TRUE(at::equal(found[0][i], found[1][i]))
          << what << " " << type << " " << i << " depends on which thread is first";
    }
  }
}

// The definition's own gradient, and so the kernel's, is its slope.
void expect_slopes(const Computation& definition, const Operands& operands) {
  constexpr double kStep = 1e-5;
  const Operands exact = in_type(operands, at::kDouble);
  at::manual_seed(6);
  const Tensor direction = at::randn(definition(exact).sizes(), at::kDouble);
  const Operands gradients = results_of(definition, exact, direction);
  size_t at = 1;
  for (const Tensor& operand : exact) {
    if (!operand.is_floating_point()) continue;
    const Tensor gradient = gradients[at++].contiguous();
    auto* const value = operand.data_ptr<double>();
    for (int64_t i = 0; i < operand.numel(); ++i) {
      const double here = value[i];
      const auto objective = [&](double there) {
        value[i] = there;
        return (definition(exact) * direction).sum().item<double>();
      };
      const double slope = (objective(here + kStep) - objective(here - kStep)) / (2 * kStep);
      value[i] = here;
      ASSERT_NEAR(gradient.data_ptr<double>()[i], slope, 1e-7 * (1 + std::abs(slope))) << i;
    }
  }
}

Tensor defined_rms_norm(const Operands& x) {
  return x[0] * at::rsqrt(x[0].square().mean(-1, true) + kEpsilon) * x[1];
}
Tensor rms_norm_by_kernel(const Operands& x) {
  return on_device::rms_norm(stub_kernels(), x[0], x[1], kEpsilon);
}

Operands norm_operands(int64_t rows, int64_t dim) {
  at::manual_seed(1);
  return {at::randn({rows, dim}), at::randn({dim})};
}

// Rows of a warp and of a block, of whole packs and not; the longest has no room in shared memory.
TEST(DeviceRows, RmsNormIsItsDefinition) {
  for (const int64_t dim : {3, 64, 65, 200, 1024, 1032, 1033, 12104}) {
    expect_definition("dim " + std::to_string(dim), defined_rms_norm, rms_norm_by_kernel,
                      norm_operands(dim > 10000 ? 2 : 5, dim));
  }
  expect_slopes(defined_rms_norm, norm_operands(3, 17));
}

// More rows than blocks: a warp or block has several.
TEST(DeviceRows, TheGradientOfANormsWeightIsOverAllRows) {
  for (const int64_t rows : {1, 9, 4200}) {
    expect_definition(std::to_string(rows) + " rows", defined_rms_norm, rms_norm_by_kernel,
                      norm_operands(rows, 8), {kBounds[0]});
  }
  expect_definition("wide", defined_rms_norm, rms_norm_by_kernel, norm_operands(515, 1040),
                    {kBounds[0]});
}

Tensor defined_swiglu(const Operands& x) { return x[0] * at::sigmoid(x[0]) * x[1]; }
Tensor swiglu_by_kernel(const Operands& x) { return on_device::swiglu(stub_kernels(), x[0], x[1]); }

TEST(DeviceRows, SwigluIsItsDefinition) {
  for (const int64_t count : {1, 7, 8, 1027, 4096}) {
    at::manual_seed(2);
    const Operands operands = {at::randn({count}) * 4, at::randn({count})};
    expect_definition(std::to_string(count), defined_swiglu, swiglu_by_kernel, operands);
    if (count < 10) expect_slopes(defined_swiglu, operands);
  }
}

TEST(DeviceRows, SwigluHasNoOverflow) {
  const Tensor gate = at::tensor({-1e4F, -200.0F, -90.0F, 90.0F, 200.0F, 1e4F});
  const Operands found =
      results_of(swiglu_by_kernel, {gate, at::ones_like(gate)}, at::ones_like(gate));
  const Operands expected = {gate.clamp_min(0), gate.gt(0).to(at::kFloat), gate.clamp_min(0)};
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LT(apart(found[i], expected[i]), 1e-30) << i;
}

constexpr double kZLoss = 0.01;

// Entropy and objective.
Tensor defined_losses(const Operands& x) {
  const Tensor log_sums = at::logsumexp(x[0], -1);
  const Tensor counted = x[1].ge(0);
  const Tensor at_target = x[0].gather(1, x[1].clamp_min(0).unsqueeze(1)).squeeze(1);
  const Tensor entropy = ((log_sums - at_target) * counted).sum();
  return at::stack({entropy.detach(), entropy + kZLoss * (log_sums.square() * counted).sum()});
}
Tensor losses_by_kernel(const Operands& x) {
  const FusedLoss loss = on_device::cross_entropy(stub_kernels(), x[0], x[1], kZLoss);
  return at::stack({loss.entropy, loss.objective}).to(x[0].scalar_type());
}

Operands loss_operands(int64_t rows, int64_t vocab) {
  at::manual_seed(3);
  Tensor targets = at::randint(vocab, {rows}, at::kLong);
  targets[rows / 2] = kNotCounted;
  targets[0] = vocab - 1;
  return {at::randn({rows, vocab}) * 5, targets};
}

TEST(DeviceRows, CrossEntropyIsItsDefinition) {
  for (const int64_t vocab : {2, 5, 16, 250, 4104}) {
    expect_definition("vocabulary of " + std::to_string(vocab), defined_losses, losses_by_kernel,
                      loss_operands(5, vocab));
  }
  expect_definition("300 rows", defined_losses, losses_by_kernel, loss_operands(300, 9));
  expect_slopes([](const Operands& x) { return defined_losses(x).narrow(0, 1, 1); },
                loss_operands(4, 7));
}

// So a copy in fp32, and its gradient, would be memory for nothing.
TEST(DeviceRows, NarrowLogitsHaveTheLossAndTheGradientsOfACopyInFp32) {
  const auto losses = [](const Tensor& logits, const Tensor& targets) {
    const FusedLoss loss = on_device::cross_entropy(stub_kernels(), logits, targets, kZLoss);
    return at::stack({loss.entropy, loss.objective});
  };
  const Tensor gradient = at::tensor({0.0F, 0.37F});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t vocab : {5, 250, 4104}) {
      const Operands operands = in_type(loss_operands(7, vocab), type);
      const Operands found =
          results_of([&](const Operands& x) { return losses(x[0], x[1]); }, operands, gradient);
      const Operands expected = results_of(
          [&](const Operands& x) { return losses(x[0].to(at::kFloat), x[1]); }, operands, gradient);
      EXPECT_EQ(found[0].scalar_type(), at::kFloat);
      EXPECT_EQ(found[1].scalar_type(), type);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_TRUE(at::equal(found[i], expected[i])) << type << " " << vocab << ", " << i;
      }
    }
  }
}

TEST(DeviceRows, AWordThatIsImpossibleCostsNothing) {
  Operands operands = loss_operands(3, 600);
  operands[0].narrow(1, 0, 300).fill_(-std::numeric_limits<double>::infinity());
  operands[1].clamp_min_(300);
  const Tensor gradient = at::ones({2});
  const Operands expected =
      results_of(defined_losses, in_type(operands, at::kDouble), gradient.to(at::kDouble));
  const Operands found = results_of(losses_by_kernel, in_type(operands, at::kFloat), gradient);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LT(apart(found[i], expected[i]), 2e-6) << i;
}

TEST(DeviceRows, ATargetThatIsNoWordHasALossThatIsNoNumber) {
  Operands operands = in_type(loss_operands(4, 6), at::kFloat);
  operands[1][3] = 6;
  EXPECT_TRUE(losses_by_kernel(operands).isnan().all().item<bool>());
}

// x, cosines, sines of one half, positions or nothing
Tensor defined_rotary(const Operands& x, const Tensor& angle, const Tensor& positions) {
  const Tensor turns = positions.defined() ? at::embedding(angle, positions) : angle;
  const Tensor both = at::cat({turns, turns}, -1).unsqueeze(-2);
  const auto halves = x[0].chunk(2, -1);
  const Tensor across = at::cat({-halves[1], halves[0]}, -1);
  return x[0] * both.cos() + across * both.sin();
}

TEST(DeviceRows, RotaryIsItsDefinition) {
  constexpr int64_t kTokens = 7;
  for (const int64_t size : {6, 16, 32}) {
    at::manual_seed(4);
    const Tensor angle = at::randn({kTokens, size / 2}, at::kDouble) * 3;
    const Tensor both = at::cat({angle, angle}, 1).unsqueeze(1);
    const Tensor cos = both.cos().to(at::kFloat);
    const Tensor sin = both.sin().to(at::kFloat);
    const Tensor documents =
        at::tensor({0, 1, 2, 0, 1, 0, 1, 0, 0, 1, 2, 3, 4, 5}, at::kLong).view({2, kTokens});
    for (const Tensor& positions : {Tensor(), documents}) {
      expect_definition(
          "heads of " + std::to_string(size),
          [&](const Operands& x) { return defined_rotary(x, angle, positions); },
          [&](const Operands& x) {
            return on_device::rotary(stub_kernels(), x[0], cos, sin, positions);
          },
          {at::randn({2, kTokens, 3, size})});
    }
  }
}

// A bad step is recognised by what is not finite.
TEST(DeviceRows, WhatIsNotANumberIsNotHidden) {
  for (const int64_t dim : {37, 40, 2048}) {
    const Tensor x = at::randn({1, dim});
    const Tensor ones = at::ones({1, dim});
    x[0][dim - 2] = std::numeric_limits<float>::quiet_NaN();
    const auto all_are_none = [](const Tensor& y) { return y.isnan().all().item<bool>(); };
    EXPECT_TRUE(all_are_none(rms_norm_by_kernel({x, ones[0]})));
    EXPECT_TRUE(all_are_none(swiglu_by_kernel({x, ones})[0][dim - 2]));
    EXPECT_TRUE(all_are_none(swiglu_by_kernel({ones, x})[0][dim - 2]));
    EXPECT_TRUE(all_are_none(losses_by_kernel({x, at::zeros({1}, at::kLong)})));
  }
}

// As autograd's: the thread has not used the GPU before.
TEST(DeviceRows, AnyThreadMayLaunch) {
  const Operands operands = in_type(norm_operands(4, 16), at::kFloat);
  const Tensor here = rms_norm_by_kernel(operands);
  Tensor there;
  std::thread([&] { there = rms_norm_by_kernel(operands); }).join();
  EXPECT_TRUE(at::equal(here, there));
}

}  // namespace
}  // namespace hpctl
