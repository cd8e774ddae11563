// SPDX-License-Identifier: Apache-2.0
// Gradients of weights in bf16 as on a GPU: added to sums in fp32 without being rounded first. The
// product that adds is a stand-in here, as LibTorch has none for a CPU.
#include "trainer/arch/wide_matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "trainer/arch/gradient_memory.h"
#include "trainer/kernels/matmul.h"
#include "trainer/state/exactness.h"

namespace hpctl {
namespace {

using at::Tensor;

constexpr int64_t kRows = 40;
constexpr int64_t kIn = 24;
constexpr int64_t kOut = 16;
constexpr int kPasses = 8;  // micro-batches

Tensor wide(const Tensor& x) { return x.detach().to(at::kFloat); }

void adds(Tensor& sum, const Tensor& a, const Tensor& b, bool first) {
  if (first) sum.zero_();
  sum.addmm_(wide(a), wide(b));
}
void adds_too(Tensor& sum, const Tensor& a, const Tensor& b, bool first) {
  if (first) sum.zero_();
  sum.add_(wide(a).mm(wide(b)));
}
void refuses(Tensor&, const Tensor&, const Tensor&, bool) {
  TORCH_CHECK(false, "self and mat2 must have the same dtype");
}

Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape).to(at::kBFloat16).set_requires_grad(true);
}

struct NarrowLayer {
  Tensor x = leaf({2, kRows / 2, kIn});
  Tensor weight = leaf({kOut, kIn});
  Tensor bias = leaf({kOut});
};

TEST(WideProducts, SumOfGradientsIsNotRounded) {
  for (const bool transposed : {true, false}) {
    at::manual_seed(5);
    NarrowLayer layer;
    if (!transposed) layer.weight = leaf({kIn, kOut});
    const Tensor sum = layer.weight.mutable_grad() =
        at::zeros(layer.weight.sizes(), at::TensorOptions(at::kFloat));
    Tensor expected = at::zeros_like(sum, at::TensorOptions(at::kDouble));
    Tensor magnitudes = at::zeros_like(expected);
    Tensor rounded = at::zeros_like(sum);
    for (int pass = 0; pass < kPasses; ++pass) {
      const Tensor out = wide_projection(layer.x, layer.weight, layer.bias, transposed, adds);
      EXPECT_EQ(out.sizes(), (std::vector<int64_t>{2, kRows / 2, kOut}));
      const Tensor gradient = at::randn(out.sizes()).to(at::kBFloat16);
      out.backward(gradient);
      const Tensor g = gradient.to(at::kDouble).view({kRows, kOut});
      const Tensor x = layer.x.detach().to(at::kDouble).view({kRows, kIn});
      const Tensor product = transposed ? g.t().mm(x) : x.t().mm(g);
      expected += product;
      magnitudes += transposed ? g.abs().t().mm(x.abs()) : x.abs().t().mm(g.abs());
      rounded += product.to(at::kBFloat16);
    }
    EXPECT_TRUE(layer.weight.grad().is_same(sum)) << "the engine's memory";
    const auto error = [&](const Tensor& found) {
      return ((found - expected).abs() / magnitudes).max().item<double>();
    };
    EXPECT_LE(error(sum), product_error(kRows * kPasses));
    EXPECT_GT(error(rounded), 4 * product_error(kRows * kPasses)) << "the test must see rounding";
  }
}

// What the first product finds in unwritten memory is not added to.
TEST(WideProducts, FirstGradientIsWritten) {
  at::manual_seed(7);
  const NarrowLayer layer;
  const Tensor gradient = at::randn({2, kRows / 2, kOut}).to(at::kBFloat16);
  const auto trained = [&](const Tensor& attached) {
    const Tensor weight = layer.weight.detach().set_requires_grad(true);
    weight.mutable_grad() = attached;
    for (int pass = 0; pass < 3; ++pass) {
      wide_projection(layer.x, weight, layer.bias, true, adds).backward(gradient);
    }
    return weight.grad();
  };
  const Tensor zeros = at::zeros({kOut, kIn});
  const Tensor anything = at::full({kOut, kIn}, std::numeric_limits<float>::quiet_NaN());
  const Tensor unwritten =
      gradient_over(anything.data_ptr<float>(), anything.numel(), "cpu", {{0, anything.numel()}});
  EXPECT_TRUE(trained(unwritten.view({kOut, kIn})).equal(trained(zeros)));
}

TEST(GradientMemory, PartsThatAreMissedBecomeZeros) {
  const Tensor memory = at::full({10}, 5.0F);
  const Tensor flat = gradient_over(memory.data_ptr<float>(), 10, "cpu", {{0, 2}, {4, 3}});
  EXPECT_FALSE(take_unwritten(flat.narrow(0, 2, 2))) << "written";
  EXPECT_FALSE(take_unwritten(flat.narrow(0, 2, 5))) << "in part";
  EXPECT_TRUE(memory.equal(at::tensor({5, 5, 5, 5, 0, 0, 0, 5, 5, 5}, at::kFloat)));
  EXPECT_EQ(unwritten_parts(flat).size(), 1U);
  EXPECT_TRUE(take_unwritten(flat.narrow(0, 0, 2)));
  EXPECT_FALSE(take_unwritten(memory)) << "not of gradient_over()";
}

TEST(WideProducts, OtherGradientsAreAutograds) {
  at::manual_seed(6);
  NarrowLayer ours;
  NarrowLayer theirs = {ours.x.detach().clone().set_requires_grad(true),
                        ours.weight.detach().clone().set_requires_grad(true),
                        ours.bias.detach().clone().set_requires_grad(true)};
  const Tensor out = wide_projection(ours.x, ours.weight, ours.bias, true, adds);
  const Tensor expected = at::linear(theirs.x, theirs.weight, theirs.bias);
  EXPECT_TRUE(out.equal(expected));
  const Tensor gradient = at::randn(out.sizes()).to(at::kBFloat16);
  out.backward(gradient);
  expected.backward(gradient);
  EXPECT_TRUE(ours.x.grad().equal(theirs.x.grad()));
  EXPECT_TRUE(ours.bias.grad().equal(theirs.bias.grad()));
  EXPECT_TRUE(ours.weight.grad().equal(theirs.weight.grad())) << "none was attached";
}

// As in releases that multiply into fp32 and do not add there.
TEST(WideProducts, FirstThatWorksIsTaken) {
  EXPECT_EQ(wide_product_that_works({adds, adds_too}, at::kCPU), adds);
  EXPECT_EQ(wide_product_that_works({refuses, adds_too}, at::kCPU), adds_too);
  EXPECT_EQ(wide_product_that_works({refuses, refuses}, at::kCPU), nullptr);
  EXPECT_EQ(wide_product_that_works({nullptr, nullptr}, at::kCPU), nullptr);
  EXPECT_EQ(wide_product_of(at::kCPU), nullptr) << "trainer/kernels has its own";
}

TEST(WideProducts, AreADifferenceToCheckpointsFromBefore) {
  Environment before;
  note_wide_gradients(false, before);
  EXPECT_TRUE(before.empty());
  Environment now;
  note_wide_gradients(true, now);
  Manifest manifest;
  manifest.step = 7;
  manifest.world_size = 1;
  manifest.environment = before;
  EXPECT_EQ(inexact_reason(manifest, 1, now),
            "weight_gradients changed from (not recorded) to in fp32 after step 7");
}

}  // namespace
}  // namespace hpctl
