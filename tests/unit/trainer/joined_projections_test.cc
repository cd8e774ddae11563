// SPDX-License-Identifier: Apache-2.0
// Projections as one product as on a GPU, beside one for each weight. The product that adds in fp32
// is a stand-in here, as LibTorch has none for a CPU.
#include "trainer/arch/joined_projections.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/trainer/counted_operations.h"
#include "trainer/kernels/matmul.h"
#include "trainer/state/exactness.h"

namespace hpctl {
namespace {

using at::Tensor;

constexpr int64_t kRows = 40;
constexpr int64_t kIn = 24;
constexpr int kPasses = 8;  // micro-batches
const std::vector<Tensor> kNoBiases(3);

void adds(Tensor& sum, const Tensor& a, const Tensor& b, bool first) {
  if (first) sum.zero_();
  sum.addmm_(a.detach().to(at::kFloat), b.detach().to(at::kFloat));
}

// As in a block: one behind the other, with their gradients.
struct Neighbours {
  explicit Neighbours(at::ScalarType type) {
    const std::vector<int64_t> rows = {16, 8, 8};
    const Tensor flat = at::randn({32 * kIn}).to(type);
    sum = at::zeros({32 * kIn});
    int64_t first = 0;
    for (const int64_t count : rows) {
      const auto part = [&](const Tensor& of) {
        return of.narrow(0, first * kIn, count * kIn).view({count, kIn});
      };
      weights.push_back(part(flat).detach().set_requires_grad(true));
      attached.push_back(part(sum));
      first += count;
    }
  }
  void attach() {
    for (size_t i = 0; i < weights.size(); ++i) weights[i].mutable_grad() = attached[i];
  }

  std::vector<Tensor> weights;
  std::vector<Tensor> attached;
  Tensor sum;
};

double distance(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>() / b.abs().max().item<double>();
}

TEST(JoinedProjections, AreThoseOfEachWeight) {
  at::manual_seed(8);
  const Neighbours ours(at::kDouble);
  const Tensor x = at::randn({2, kRows / 2, kIn}, at::kDouble).requires_grad_();
  const Tensor same_x = x.detach().clone().requires_grad_();
  const std::vector<Tensor> results = joined_projections(x, ours.weights, kNoBiases, nullptr);
  ASSERT_EQ(results.size(), 3U);
  for (const bool columns : {false, true}) {
    SCOPED_TRACE(columns ? "gradients are columns of one array" : "gradients lie apart");
    const Tensor whole = at::randn({2, kRows / 2, 32}, at::kDouble);
    std::vector<Tensor> gradients = whole.split_with_sizes({16, 8, 8}, -1);
    std::vector<Tensor> expected_weights;
    for (size_t i = 0; i < 3; ++i) {
      if (!columns) gradients[i] = gradients[i].contiguous();
      const Tensor weight = ours.weights[i].detach().clone().requires_grad_();
      const Tensor expected = at::linear(same_x, weight);
      EXPECT_LT(distance(results[i], expected), 1e-14) << i;
      expected.backward(gradients[i]);
      expected_weights.push_back(weight.grad());
    }
    const testing::CountedOperations counted;
    torch::autograd::backward(results, gradients, /*retain_graph=*/true);
    EXPECT_EQ(testing::CountedOperations::of("aten::cat"), columns ? 0 : 1);
    EXPECT_LT(distance(x.grad(), same_x.grad()), 1e-13);
    for (size_t i = 0; i < 3; ++i) {
      Tensor& found = ours.weights[i].mutable_grad();
      EXPECT_LT(distance(found, expected_weights[i]), 1e-13) << i;
      found = Tensor();
    }
    x.mutable_grad() = same_x.mutable_grad() = Tensor();
  }
}

TEST(JoinedProjections, AddToNeighbouringGradientsInFp32) {
  at::manual_seed(9);
  Neighbours layer(at::kBFloat16);
  layer.attach();
  const Tensor x = at::randn({kRows, kIn}).to(at::kBFloat16).requires_grad_();
  Tensor expected = at::zeros({32, kIn}, at::kDouble);
  Tensor magnitudes = at::zeros_like(expected);
  for (int pass = 0; pass < kPasses; ++pass) {
    const Tensor gradient = at::randn({kRows, 32}).to(at::kBFloat16);
    torch::autograd::backward(joined_projections(x, layer.weights, kNoBiases, adds),
                              gradient.split_with_sizes({16, 8, 8}, 1));
    const Tensor g = gradient.to(at::kDouble);
    const Tensor exact_x = x.detach().to(at::kDouble);
    expected += g.t().mm(exact_x);
    magnitudes += g.abs().t().mm(exact_x.abs());
  }
  EXPECT_TRUE(layer.weights[1].grad().is_same(layer.attached[1])) << "the engine's memory";
  const Tensor found = layer.sum.view({32, kIn});
  EXPECT_LE(((found - expected).abs() / magnitudes).max().item<double>(),
            product_error(kRows * kPasses));
}

TEST(JoinedProjections, FrozenWeightsHaveNoGradients) {
  at::manual_seed(10);
  Neighbours layer(at::kDouble);
  for (Tensor& weight : layer.weights) weight.set_requires_grad(false);
  const Tensor x = at::randn({kRows, kIn}, at::kDouble).requires_grad_();
  at::cat(joined_projections(x, layer.weights, kNoBiases, nullptr), 1).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(layer.weights[0].grad().defined());
}

TEST(JoinedProjections, AreOfNeighboursAlone) {
  Neighbours layer(at::kFloat);
  const std::vector<Tensor>& w = layer.weights;
  EXPECT_EQ(joined_rows({w[0], w[1], w[2]}).sizes(), (std::vector<int64_t>{32, kIn}));
  EXPECT_EQ(joined_rows({w[1], w[2]}).data_ptr(), w[1].data_ptr());
  EXPECT_FALSE(joined_rows({w[0], w[1], w[2]}).requires_grad()) << "unknown to autograd";
  EXPECT_FALSE(joined_rows({w[0], w[2]}).defined()) << "something is between them";
  EXPECT_FALSE(joined_rows({w[2], w[1]}).defined());
  EXPECT_FALSE(joined_rows({w[0], w[1].detach().clone().requires_grad_()}).defined());
}

// As with Qwen2.5, whose biases are between the weights.
TEST(JoinedProjections, WeightsWithBiasesBetweenThemAreCopied) {
  at::manual_seed(11);
  const Tensor x = at::randn({kRows, kIn}, at::kDouble).requires_grad_();
  const Tensor same_x = x.detach().clone().requires_grad_();
  std::vector<Tensor> weights;
  std::vector<Tensor> biases;
  std::vector<Tensor> gradients;
  std::vector<Tensor> expected_weights;
  std::vector<Tensor> expected_biases;
  std::vector<Tensor> expected;
  for (const int64_t out : {16, 8, 8}) {
    weights.push_back(at::randn({out, kIn}, at::kDouble).requires_grad_());
    biases.push_back(at::randn({out}, at::kDouble).requires_grad_());
    gradients.push_back(at::randn({kRows, out}, at::kDouble));
    expected_weights.push_back(weights.back().detach().clone().requires_grad_());
    expected_biases.push_back(biases.back().detach().clone().requires_grad_());
    expected.push_back(at::linear(same_x, expected_weights.back(), expected_biases.back()));
    expected.back().backward(gradients.back());
  }
  const std::vector<Tensor> results = joined_projections(x, weights, biases, nullptr);
  torch::autograd::backward(results, gradients);
  EXPECT_LT(distance(x.grad(), same_x.grad()), 1e-13);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_LT(distance(results[i], expected[i]), 1e-14) << i;
    EXPECT_LT(distance(weights[i].grad(), expected_weights[i].grad()), 1e-13) << i;
    EXPECT_LT(distance(biases[i].grad(), expected_biases[i].grad()), 1e-13) << i;
  }
}

TEST(JoinedProjections, AddToGradientsInFp32ThatLieApart) {
  at::manual_seed(12);
  std::vector<Tensor> weights;
  std::vector<Tensor> sums;
  for (const int64_t out : {16, 8, 8}) {
    weights.push_back(at::randn({out, kIn}).to(at::kBFloat16).requires_grad_());
    sums.push_back(at::zeros({out, kIn}));
    weights.back().mutable_grad() = sums.back();
  }
  const Tensor x = at::randn({kRows, kIn}).to(at::kBFloat16);
  const Tensor gradient = at::randn({kRows, 32}).to(at::kBFloat16);
  torch::autograd::backward(joined_projections(x, weights, kNoBiases, adds),
                            gradient.split_with_sizes({16, 8, 8}, 1));
  const Tensor g = gradient.to(at::kDouble);
  const Tensor exact_x = x.to(at::kDouble);
  const Tensor error = (at::cat(sums, 0) - g.t().mm(exact_x)).abs() / g.abs().t().mm(exact_x.abs());
  EXPECT_LE(error.max().item<double>(), product_error(kRows));
  EXPECT_TRUE(weights[2].grad().is_same(sums[2])) << "the engine's memory";
}

TEST(JoinedProjections, AreWorthACopyOfTheWeightsWithManyRows) {
  const Neighbours neighbours(at::kFloat);
  const std::vector<Tensor>& w = neighbours.weights;
  const std::vector<Tensor> apart = {w[2], w[1], w[0]};
  const auto bias = [](int64_t out) { return at::zeros({out}).requires_grad_(); };
  const std::vector<Tensor> biases = {bias(8), bias(8), bias(16)};
  const Tensor few = at::zeros({2, 15, kIn});
  const Tensor many = at::zeros({2, 16, kIn});
  EXPECT_TRUE(worth_joining(few, w, kNoBiases)) << "nothing is copied";
  EXPECT_FALSE(worth_joining(few, apart, kNoBiases));
  EXPECT_TRUE(worth_joining(many, apart, kNoBiases));
  EXPECT_TRUE(worth_joining(many, apart, biases));
  EXPECT_FALSE(worth_joining(many, apart, {biases[0], biases[1], Tensor()}));
  EXPECT_FALSE(worth_joining(many, {w[0], w[1], w[2].detach()}, kNoBiases)) << "one is frozen";
}

TEST(JoinedProjections, AreADifferenceToCheckpointsFromBefore) {
  for (const Arch arch : {Arch::llama, Arch::gpt}) {
    ModelSpec model;
    model.arch = arch;
    Environment environment;
    note_joined_projections(model, environment);
    EXPECT_EQ(environment.contains("projections"), arch == Arch::llama) << to_word(arch);
  }
}

}  // namespace
}  // namespace hpctl
