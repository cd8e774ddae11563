// SPDX-License-Identifier: Apache-2.0
// RMSNorm and SwiGLU as the models call them, in types narrower than those that the kernels compute
// in, and the memory of the loss (rowwise_test.cc has the kernels).
#include "trainer/arch/fused_ops.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "trainer/compat/torch_compat.h"
#include "trainer/kernels/rowwise.h"

namespace hpctl {
namespace {

using at::Tensor;
using Operation = std::function<Tensor(const std::vector<Tensor>&)>;

// The result, and the gradients of the operands where that of the result is the result itself.
std::vector<Tensor> results_of(const Operation& operation, const std::vector<Tensor>& operands,
                               at::ScalarType type) {
  std::vector<Tensor> leaves;
  for (const Tensor& operand : operands) {
    leaves.push_back(operand.to(type).detach().requires_grad_());
  }
  const Tensor result = operation(leaves);
  result.backward(result.detach());
  std::vector<Tensor> results = {result.detach()};
  for (const Tensor& leaf : leaves) results.push_back(leaf.grad());
  return results;
}

void expect_rounded_once(const Operation& operation, const std::vector<Tensor>& operands) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    std::vector<Tensor> exact;  // in fp32 what they are in the narrow type
    exact.reserve(operands.size());
    for (const Tensor& operand : operands) exact.push_back(operand.to(type));
    const std::vector<Tensor> narrow = results_of(operation, exact, type);
    const std::vector<Tensor> wide = results_of(operation, exact, at::kFloat);
    EXPECT_TRUE(at::equal(narrow[0], wide[0].to(type))) << type;
    for (size_t i = 1; i < narrow.size(); ++i) {
      EXPECT_EQ(narrow[i].scalar_type(), type) << i;
      // The gradient that it comes from, the result, was rounded, and then it is itself.
      const double largest = wide[i].abs().max().item<double>();
      const double difference = (narrow[i].to(at::kFloat) - wide[i]).abs().max().item<double>();
      EXPECT_LT(difference / largest, type == at::kHalf ? kRowErrorFp16 : kRowErrorBf16)
          << type << " " << i;
      EXPECT_GT(difference, 0) << type << " " << i << ": nothing was rounded";
    }
  }
}

TEST(FusedRows, NormsOfNarrowTypesAreRoundedOnce) {
  at::manual_seed(1);
  expect_rounded_once([](const auto& x) { return fused_rms_norm(x[0], x[1], 1e-5); },
                      {at::randn({3, 70, 48}), at::randn({48})});
}

// In the type of x, as operations of their own give them: the residual stream, its norm, and where
// the gradients of those are themselves the gradients of the operands.
std::vector<Tensor> branch_of(std::vector<Tensor> operands, bool fused) {
  for (Tensor& operand : operands) operand = operand.detach().requires_grad_();
  const bool adds = operands.size() == 3;
  const Tensor& weight = operands.back();
  const Tensor addend = adds ? operands[1] : Tensor();
  ResidualNorm both;
  if (fused) {
    both = fused_residual_rms_norm(operands[0], addend, weight, 1e-5);
  } else {
    both.residual = adds ? operands[0] + addend : operands[0];
    both.normed = fused_rms_norm(both.residual, weight, 1e-5);
  }
  torch::autograd::backward({both.residual * 1, both.normed},
                            {both.residual.detach(), both.normed.detach()});
  std::vector<Tensor> results = {both.residual.detach(), both.normed.detach()};
  for (const Tensor& operand : operands) results.push_back(operand.grad());
  return results;
}

TEST(FusedRows, ABranchBeginsWithTheBitsOfASumAndANorm) {
  at::manual_seed(4);
  const Tensor x = at::randn({3, 170, 48});
  const Tensor addend = at::randn({3, 170, 48});
  const Tensor weight = at::randn({48});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    for (std::vector<Tensor> operands :
         {std::vector<Tensor>{x, weight}, std::vector<Tensor>{x, addend, weight}}) {
      for (Tensor& operand : operands) operand = operand.to(type);
      const std::vector<Tensor> found = branch_of(operands, true);
      const std::vector<Tensor> expected = branch_of(operands, false);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::equal(found[i], expected[i])) << type << " " << i;
      }
    }
  }
}

TEST(FusedRows, SwigluOfNarrowTypesIsRoundedOnce) {
  at::manual_seed(2);
  expect_rounded_once([](const auto& x) { return fused_swiglu(x[0], x[1]); },
                      {at::randn({3, 70, 40}), at::randn({3, 70, 40})});
}

// Of logits that an operation makes, or that a leaf or a view of a leaf are: the gradient of what
// they come from, the logits afterwards, and the loss once more where `twice`.
struct LossOfLogits {
  Tensor gradient;
  Tensor logits;
};
LossOfLogits loss_of(const std::function<Tensor(const Tensor&)>& make, bool twice = false,
                     at::ScalarType type = at::kFloat) {
  at::manual_seed(3);
  const Tensor leaf = at::randn({5, 70}).to(type).requires_grad_();
  const Tensor targets = at::randint(70, {5}, at::kLong);
  const Tensor logits = make(leaf);
  const Tensor objective = fused_cross_entropy(logits, targets, 1e-4).objective;
  objective.backward({}, twice);
  if (twice) objective.backward();
  return {leaf.grad(), logits.detach()};
}

TEST(FusedRows, TheGradientOfLogitsReplacesThoseThatAnOperationMade) {
  const LossOfLogits leaf = loss_of([](const Tensor& x) { return x; });
  const LossOfLogits made = loss_of([](const Tensor& x) { return x * 1; });
  const LossOfLogits view = loss_of([](const Tensor& x) { return x.view({5, 70}); });
  EXPECT_TRUE(at::equal(made.gradient, leaf.gradient)) << "bits of the same pass";
  EXPECT_TRUE(at::equal(view.gradient, leaf.gradient));
  EXPECT_TRUE(at::equal(made.logits, made.gradient)) << "no array beside them";
  EXPECT_TRUE(at::equal(view.logits, leaf.logits)) << "a leaf is its owner's";
  EXPECT_FALSE(at::equal(leaf.logits, leaf.gradient));
}

TEST(FusedRows, LossOfBf16IsThatOfFp32WithItsGradientRounded) {
  const LossOfLogits narrow = loss_of([](const Tensor& x) { return x * 1; }, false, at::kBFloat16);
  const LossOfLogits wide =
      loss_of([](const Tensor& x) { return x.to(at::kFloat); }, false, at::kBFloat16);
  EXPECT_TRUE(at::equal(narrow.gradient, wide.gradient));
  EXPECT_TRUE(at::equal(narrow.logits, narrow.gradient)) << "no array beside them";
}

TEST(FusedRows, LogitsThatAreReplacedHaveNoSecondGradient) {
  const LossOfLogits leaf = loss_of([](const Tensor& x) { return x; }, true);
  EXPECT_TRUE(leaf.gradient.defined());
  EXPECT_THROW(loss_of([](const Tensor& x) { return x * 1; }, true), c10::Error);
}

}  // namespace
}  // namespace hpctl
