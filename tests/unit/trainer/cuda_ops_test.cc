// SPDX-License-Identifier: Apache-2.0
// The kernels of a GPU on a machine without one: the real text of trainer/kernels/device and the
// real launches, over stubs of NVRTC and of the driver that run a block's threads as fibers
// (device_language.h). Results and gradients beside their definitions by ATen in fp64, which
// tests/gpu/kernel_cases.h has because a real card is held against the same; the definitions' own
// gradients beside finite differences. Each in both orders of a block's threads, which must not
// change a bit.
#include "trainer/arch/cuda_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/kernel_cases.h"
#include "tests/unit/trainer/stub_kernels.h"

namespace hpctl {
namespace {

using at::Tensor;
using testing::apart;
using testing::Computation;
using testing::in_type;
using testing::kZLoss;
using testing::Operands;
using testing::results_of;
using testing::stub_kernels;

void expect_definitions(const std::vector<testing::KernelCase>& cases) {
  for (const testing::KernelCase& one : cases) {
    for (const testing::Comparison& result :
         testing::compare(one, at::kCPU, testing::both_orders())) {
      EXPECT_TRUE(result.passed()) << result.text();
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

Tensor rms_norm_by_kernel(const Operands& x) {
  return on_device::rms_norm(stub_kernels(), x[0], x[1], testing::kNormEpsilon);
}

TEST(DeviceRows, RmsNormIsItsDefinition) {
  expect_definitions(testing::norm_cases(stub_kernels()));
  expect_slopes(testing::defined_rms_norm, testing::norm_operands(3, 17));
}

TEST(DeviceRows, ResidualNormHasTheBitsOfASumAndANorm) {
  EXPECT_THAT(testing::residual_norm_problems(stub_kernels(), at::kCPU, testing::both_orders()),
              ::testing::IsEmpty());
}

Tensor swiglu_by_kernel(const Operands& x) { return on_device::swiglu(stub_kernels(), x[0], x[1]); }

TEST(DeviceRows, SwigluIsItsDefinition) {
  expect_definitions(testing::swiglu_cases(stub_kernels()));
  for (const int64_t count : {1, 7}) {
    expect_slopes(testing::defined_swiglu, testing::swiglu_operands(count));
  }
}

TEST(DeviceRows, SwigluHasNoOverflow) {
  const Tensor gate = at::tensor({-1e4F, -200.0F, -90.0F, 90.0F, 200.0F, 1e4F});
  const Operands found =
      results_of(swiglu_by_kernel, {gate, at::ones_like(gate)}, at::ones_like(gate));
  const Operands expected = {gate.clamp_min(0), gate.gt(0).to(at::kFloat), gate.clamp_min(0)};
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LT(apart(found[i], expected[i]), 1e-30) << i;
}

Tensor losses_by_kernel(const Operands& x) {
  const FusedLoss loss = on_device::cross_entropy(stub_kernels(), x[0], x[1], kZLoss);
  return at::stack({loss.entropy, loss.objective}).to(x[0].scalar_type());
}

TEST(DeviceRows, CrossEntropyIsItsDefinition) {
  expect_definitions(testing::loss_cases(stub_kernels()));
  expect_slopes([](const Operands& x) { return testing::defined_losses(x).narrow(0, 1, 1); },
                testing::loss_operands(4, 7));
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
      const Operands operands = in_type(testing::loss_operands(7, vocab), type);
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
  Operands operands = testing::loss_operands(3, 600);
  operands[0].narrow(1, 0, 300).fill_(-std::numeric_limits<double>::infinity());
  operands[1].clamp_min_(300);
  const Tensor gradient = at::ones({2});
  const Operands expected =
      results_of(testing::defined_losses, in_type(operands, at::kDouble), gradient.to(at::kDouble));
  const Operands found = results_of(losses_by_kernel, in_type(operands, at::kFloat), gradient);
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_LT(apart(found[i], expected[i]), device_row_bound(Element::kFp32)) << i;
}

TEST(DeviceRows, ATargetThatIsNoWordHasALossThatIsNoNumber) {
  Operands operands = in_type(testing::loss_operands(4, 6), at::kFloat);
  operands[1][3] = 6;
  EXPECT_TRUE(losses_by_kernel(operands).isnan().all().item<bool>());
}

TEST(DeviceRows, RotaryIsItsDefinition) {
  expect_definitions(testing::rotary_cases(stub_kernels()));
  const Tensor angle = at::randn({4, 3}, at::kDouble) * 3;
  const Tensor positions = at::tensor({0, 1, 2, 0, 1, 0, 1, 3}, at::kLong).view({2, 4});
  for (const Tensor& documents : {Tensor(), positions}) {
    expect_slopes(testing::defined_rotary(angle, documents), {at::randn({2, 4, 2, 6})});
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
  const Operands operands = in_type(testing::norm_operands(4, 16), at::kFloat);
  const Tensor here = rms_norm_by_kernel(operands);
  Tensor there;
  std::thread([&] { there = rms_norm_by_kernel(operands); }).join();
  EXPECT_TRUE(at::equal(here, there));
}

}  // namespace
}  // namespace hpctl
