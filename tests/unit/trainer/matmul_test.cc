// SPDX-License-Identifier: Apache-2.0
// Products with weights (trainer/arch/ops.h) beside autograd's own in fp64 and finite differences,
// and where the gradient of a weight goes.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "trainer/arch/fused_ops.h"
#include "trainer/arch/ops.h"
#include "trainer/kernels/level.h"
#include "trainer/kernels/matmul.h"

namespace hpctl {
namespace {

using at::Tensor;

struct Layer {
  explicit Layer(at::ScalarType type = at::kDouble)
      : x(leaf(at::randn({2, 70, 48}), type)),
        weight(leaf(at::randn({33, 48}), type)),
        bias(leaf(at::randn({33}), type)) {}

  static Tensor leaf(const Tensor& value, at::ScalarType type) {
    return value.to(type).detach().requires_grad_();
  }

  Tensor x, weight, bias;
};

Layer seeded(uint64_t seed, at::ScalarType type = at::kDouble) {
  at::manual_seed(seed);
  return Layer(type);
}

double distance(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>() / b.abs().max().item<double>();
}

// In units of the magnitudes that each element is the sum of.
double error_of(const Tensor& found, const Tensor& exact, const Tensor& magnitudes) {
  return ((found.detach().to(at::kDouble) - exact) / magnitudes).abs().max().item<double>();
}

void backward_from(const Tensor& result) { result.backward(at::ones_like(result).cumsum(-1)); }

TEST(Products, AreThoseOfAutograd) {
  for (const bool biased : {false, true}) {
    const Layer ours = seeded(3);
    const Layer theirs = seeded(3);
    const Tensor result =
        biased ? ops::linear(ours.x, ours.weight, ours.bias) : ops::linear(ours.x, ours.weight);
    const Tensor expected = at::linear(theirs.x, theirs.weight,
                                       biased ? c10::optional<Tensor>(theirs.bias) : c10::nullopt);
    EXPECT_LT(distance(result, expected), 1e-14);
    backward_from(result);
    backward_from(expected);
    EXPECT_LT(distance(ours.x.grad(), theirs.x.grad()), 1e-13);
    EXPECT_LT(distance(ours.weight.grad(), theirs.weight.grad()), 1e-13);
    EXPECT_EQ(ours.bias.grad().defined(), biased);
    if (biased) {
      EXPECT_LT(distance(ours.bias.grad(), theirs.bias.grad()), 1e-13);
    }
  }
}

TEST(Products, OfFp32AreWithinTheirBound) {
  const Layer ours = seeded(13, at::kFloat);
  const Tensor result = ops::linear(ours.x, ours.weight, ours.bias);
  const Tensor given = at::randn({2, 70, 33});
  result.backward(given);
  const auto wide = [](const Tensor& x) { return x.detach().to(at::kDouble); };
  const Tensor x = wide(ours.x).view({140, 48});
  const Tensor weight = wide(ours.weight);
  const Tensor bias = wide(ours.bias);
  const Tensor gradient = wide(given).view({140, 33});
  EXPECT_LE(error_of(result.view({140, 33}), at::linear(x, weight, bias),
                     at::linear(x.abs(), weight.abs(), bias.abs())),
            product_error(48));
  EXPECT_LE(
      error_of(ours.x.grad().view({140, 48}), gradient.mm(weight), gradient.abs().mm(weight.abs())),
      product_error(33));
  EXPECT_LE(error_of(ours.weight.grad(), gradient.t().mm(x), gradient.abs().t().mm(x.abs())),
            product_error(140));
}

TEST(Products, TakeWeightsOfTheOtherOrientation) {
  const Layer ours = seeded(4);
  const Layer theirs = seeded(4);
  const Tensor rows = ours.x.view({140, 48});
  const Tensor turned = Layer::leaf(ours.weight.t().contiguous(), at::kDouble);
  backward_from(ops::addmm(ours.bias, rows, turned));
  backward_from(at::linear(theirs.x, theirs.weight, theirs.bias));
  EXPECT_LT(distance(turned.grad().t(), theirs.weight.grad()), 1e-13);
  EXPECT_LT(distance(ours.bias.grad(), theirs.bias.grad()), 1e-13);
  EXPECT_LT(distance(ours.x.grad(), theirs.x.grad()), 1e-13);
}

// The engine attaches memory of its own, which must stay the gradient, and gets sums there.
TEST(Products, AddToTheGradientThatIsAttached) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Layer ours = seeded(5, type);
    const Layer theirs = seeded(5);
    const Tensor memory = at::full({33, 48}, 2, type);
    ours.weight.mutable_grad() = memory;
    for (int pass = 0; pass < 2; ++pass) {
      backward_from(ops::linear(ours.x, ours.weight));
      backward_from(at::linear(theirs.x, theirs.weight));
    }
    EXPECT_TRUE(ours.weight.grad().is_same(memory));
    const Tensor magnitudes =
        2 * at::ones({33, 140}, at::kDouble).cumsum(0).mm(theirs.x.detach().view({140, 48}).abs());
    EXPECT_LE(error_of(memory, theirs.weight.grad() + 2, magnitudes + 2),
              type == at::kDouble ? 1e-13 : product_error(2 * 140));
  }
}

// The output projection and its loss, two of six rows at a time, as the engine has them.
double loss_of_chunks(const Tensor& x, const Tensor& weight, const Tensor& targets, Tensor& slope) {
  double sum = 0;
  for (int64_t first = 0; first < x.size(0); first += 2) {
    const Tensor chunk = x.narrow(0, first, 2).detach().requires_grad_();
    const Tensor loss =
        fused_cross_entropy(ops::linear(chunk, weight), targets.narrow(0, first, 2), 1e-2)
            .objective;
    loss.backward();
    slope.narrow(0, first, 2).copy_(chunk.grad());
    sum += loss.item<double>();
  }
  return sum;
}

TEST(Products, AddTheGradientsOfALossInChunksThatFiniteDifferencesHave) {
  at::manual_seed(8);
  const Tensor x = at::randn({6, 5}, at::kDouble);
  const Tensor weight = Layer::leaf(at::randn({7, 5}), at::kDouble);
  const Tensor targets = at::randint(7, {6}, at::kLong);
  const Tensor added = weight.mutable_grad() = at::zeros({7, 5}, at::kDouble);
  Tensor x_gradient = at::empty_like(x);
  loss_of_chunks(x, weight, targets, x_gradient);
  const Tensor weight_gradient = added.clone();  // what follows adds more
  constexpr double kStep = 1e-5;
  Tensor ignored = at::empty_like(x);
  for (const auto& [values, gradient] :
       {std::pair{x, x_gradient}, std::pair{weight.detach(), weight_gradient}}) {
    for (int64_t i = 0; i < values.numel(); ++i) {
      double* const value = values.data_ptr<double>() + i;
      const double before = *value;
      *value = before + kStep;
      const double above = loss_of_chunks(x, weight, targets, ignored);
      *value = before - kStep;
      const double below = loss_of_chunks(x, weight, targets, ignored);
      *value = before;
      EXPECT_NEAR(gradient.data_ptr<double>()[i], (above - below) / (2 * kStep), 1e-8) << i;
    }
  }
}

// The first product that is added to zeros has the bits of the product.
TEST(Products, OnZerosHaveTheBitsOfTheProduct) {
  const Layer attached = seeded(6, at::kFloat);
  const Layer alone = seeded(6, at::kFloat);
  attached.weight.mutable_grad() = at::zeros({33, 48});
  backward_from(ops::linear(attached.x, attached.weight));
  backward_from(ops::linear(alone.x, alone.weight));
  EXPECT_TRUE(at::equal(attached.weight.grad(), alone.weight.grad()));
}

// The gradients of x and of a weight in bf16, to which a wide one is attached.
struct NarrowGradients {
  explicit NarrowGradients(Bf16Products products) {
    const ScopedBf16Products scoped(products);
    const Layer narrow = seeded(7, at::kBFloat16);
    narrow.weight.mutable_grad() = weight = at::ones({33, 48});
    result = ops::linear(narrow.x, narrow.weight, narrow.bias);
    result.backward(seeded(9, at::kBFloat16).x.detach().narrow(2, 0, 33));
    EXPECT_TRUE(narrow.weight.grad().is_same(weight));
    x = narrow.x.grad();
    bias = narrow.bias.grad();
  }
  Tensor result, x, weight, bias;
};

// A weight in bf16 has a wide gradient, to which the unrounded product is added.
TEST(Products, OfBf16WeightsAreAddedUnrounded) {
  const Layer wide = seeded(7, at::kBFloat16);
  const Tensor weight = Layer::leaf(wide.weight, at::kFloat);
  const Tensor x = Layer::leaf(wide.x, at::kFloat);
  const Tensor bias = Layer::leaf(wide.bias, at::kFloat);
  weight.mutable_grad() = at::ones({33, 48});
  const Tensor result = ops::linear(x, weight, bias);
  const Tensor gradient = seeded(9, at::kBFloat16).x.detach().narrow(2, 0, 33);
  result.backward(gradient.to(at::kFloat));
  const NarrowGradients widened(Bf16Products::kWidened);
  EXPECT_TRUE(at::equal(widened.result, result.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(widened.weight, weight.grad()));
  EXPECT_TRUE(at::equal(widened.x, x.grad().to(at::kBFloat16)));
  if (!has_bf16_matrix_units()) return;
  const NarrowGradients units(Bf16Products::kMatrixUnits);
  EXPECT_EQ(units.result.scalar_type(), at::kBFloat16);
  const Tensor left = gradient.to(at::kDouble).reshape({140, 33}).t();
  const Tensor right = x.detach().to(at::kDouble).view({140, 48});
  EXPECT_LE(error_of(units.weight, left.mm(right) + 1, left.abs().mm(right.abs()) + 1),
            product_error(140));  // rounded it would be 2e-3
  constexpr double kRounding = 1.0 / 256;
  EXPECT_LT(distance(units.result.to(at::kFloat), result), kRounding);
  EXPECT_LT(distance(units.x.to(at::kFloat), x.grad()), kRounding);
  EXPECT_TRUE(at::equal(units.bias, widened.bias));
}

// Without a wide gradient there is one in bf16, as of any other operation.
TEST(Products, OfBf16WithoutAnAttachedGradientAreRounded) {
  for (const Bf16Products products : {Bf16Products::kWidened, bf16_products()}) {
    const ScopedBf16Products scoped(products);
    const Layer narrow = seeded(10, at::kBFloat16);
    const Tensor rows = narrow.x.view({140, 48});
    const Tensor turned = Layer::leaf(narrow.weight.t().contiguous(), at::kBFloat16);
    ops::addmm(narrow.bias, rows, turned).backward(at::ones({140, 33}, at::kBFloat16));
    const Layer exact = seeded(10, at::kBFloat16);
    const Tensor expected = exact.x.detach().to(at::kFloat).view({140, 48}).sum(0);
    EXPECT_EQ(turned.grad().scalar_type(), at::kBFloat16);
    EXPECT_LT(distance(turned.grad().to(at::kFloat), expected.unsqueeze(1).expand({48, 33})),
              1.0 / 256);
  }
}

// Results, and gradients of all operands, of three products of one x, by linears() or by linear().
std::vector<Tensor> three_products(at::ScalarType type, bool at_once) {
  const Layer first = seeded(12, type);
  const Tensor& x = first.x;
  std::vector<Tensor> weights = {first.weight};
  for (const int64_t out : {16, 70}) {
    weights.push_back(Layer::leaf(at::randn({out, 48}), type));
    weights.back().mutable_grad() = at::ones({out, 48}, type == at::kBFloat16 ? at::kFloat : type);
  }
  const std::vector<Tensor> biases = {first.bias, Tensor(), Tensor()};
  std::vector<Tensor> results;
  if (at_once) {
    results = ops::linears(x, weights, biases);
  } else {
    for (size_t i = 0; i < 3; ++i) results.push_back(ops::linear(x, weights[i], biases[i]));
  }
  std::vector<Tensor> found;
  for (const Tensor& result : results) found.push_back(result.detach());
  torch::autograd::backward({results[0], results[1], results[2]}, {found[0], found[1], found[2]});
  found.insert(found.end(), {x.grad(), first.bias.grad()});
  for (const Tensor& weight : weights) found.push_back(weight.grad());
  return found;
}

TEST(Products, OfOneOperandHaveTheBitsOfEach) {
  for (const Bf16Products products : {Bf16Products::kWidened, bf16_products()}) {
    const ScopedBf16Products scoped(products);
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const std::vector<Tensor> found = three_products(type, true);
      const std::vector<Tensor> expected = three_products(type, false);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::equal(found[i], expected[i])) << to_word(products) << type << " " << i;
      }
    }
  }
}

TEST(Products, OnMatrixUnitsHaveTheSameBitsWithTwoThreads) {
  if (!has_bf16_matrix_units()) GTEST_SKIP() << "this processor has no matrix units";
  const ScopedBf16Products scoped(Bf16Products::kMatrixUnits);
  at::manual_seed(11);
  const Tensor x = at::randn({700, 200}).to(at::kBFloat16);
  const Tensor weight = at::randn({300, 200}).to(at::kBFloat16);
  const int before = at::get_num_threads();
  std::vector<Tensor> gradients;
  std::vector<Tensor> results;
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    const Tensor leaf = Layer::leaf(weight, at::kBFloat16);
    leaf.mutable_grad() = at::zeros({300, 200});
    results.push_back(ops::linear(x, leaf));
    results.back().backward(results.back().detach());
    gradients.push_back(leaf.grad());
  }
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(results[0], results[1]));
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
}

// Those in fp16 are rounded to it first: what overflows tells that the loss scale is too high.
TEST(Products, OfFp16WeightsOverflow) {
  const Layer narrow = seeded(7, at::kHalf);
  narrow.weight.mutable_grad() = at::zeros({33, 48});
  ops::linear(narrow.x, narrow.weight).backward(at::full({2, 70, 33}, 3e4, at::kHalf));
  EXPECT_EQ(narrow.weight.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(narrow.weight.grad().isinf().any().item<bool>());
}

TEST(Products, LeaveFrozenWeightsAlone) {
  const Layer layer = seeded(8);
  const Tensor frozen = layer.weight.detach();
  backward_from(ops::linear(layer.x, frozen));
  EXPECT_TRUE(layer.x.grad().defined());
  EXPECT_FALSE(frozen.grad().defined());
}

}  // namespace
}  // namespace hpctl
