// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "tests/gpu/kernel_cases.h"
#include "trainer/arch/gradient_memory.h"
#include "trainer/arch/wide_matmul.h"
#include "trainer/kernels/matmul.h"

namespace hpctl::testing {

namespace {

using at::Tensor;

constexpr int kPasses = 2;  // micro-batches

struct Shape {
  int64_t rows;
  int64_t in;
  int64_t out;
};
constexpr std::array kShapes = {Shape{64, 48, 32}, Shape{1000, 72, 40}, Shape{4096, 512, 264}};

void add_on_host(Tensor& sum, const Tensor& a, const Tensor& b, bool first) {
  if (first) sum.zero_();
  sum.addmm_(a.to(at::kFloat), b.to(at::kFloat));
}

// The gradient that is attached to a layer's weight after the backward passes.
Tensor trained(const Tensor& x, const Tensor& weight, const Tensor& gradient, bool transposed,
               AddWideProduct* add, bool unwritten) {
  const Tensor leaf = weight.detach().set_requires_grad(true);
  const double anything = std::numeric_limits<double>::quiet_NaN();
  const Tensor sum =
      at::full(weight.sizes(), unwritten ? anything : 0.0, weight.options().dtype(at::kFloat));
  leaf.mutable_grad() = sum;
  if (unwritten) {
    leaf.mutable_grad() =
        gradient_over(sum.data_ptr<float>(), sum.numel(), sum.device().str(), {{0, sum.numel()}})
            .view(sum.sizes());
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    compat::backward(wide_projection(x, leaf, {}, transposed, add), gradient);
  }
  return sum;
}

Tensor random_on(at::Device device, at::IntArrayRef shape) {
  return at::randn(shape).to(at::kBFloat16).to(device);
}

}  // namespace

std::vector<std::string> weight_gradient_problems(at::Device device) {
  AddWideProduct* const add = device.is_cpu() ? &add_on_host : wide_product_of(device);
  if (add == nullptr) return {};  // this LibTorch has none, as the log says
  std::vector<std::string> problems;
  at::manual_seed(11);
  for (const Shape& shape : kShapes) {
    for (const bool transposed : {true, false}) {
      const Tensor x = random_on(device, {shape.rows, shape.in});
      const Tensor gradient = random_on(device, {shape.rows, shape.out});
      const Tensor weight = transposed ? random_on(device, {shape.out, shape.in})
                                       : random_on(device, {shape.in, shape.out});
      const auto product = [&](const Tensor& a, const Tensor& b) {
        return transposed ? b.t().mm(a) : a.t().mm(b);
      };
      const Tensor exact_x = x.cpu().to(at::kDouble);
      const Tensor exact_gradient = gradient.cpu().to(at::kDouble);
      const Tensor expected = product(exact_x, exact_gradient) * kPasses;
      const Tensor magnitudes = product(exact_x.abs(), exact_gradient.abs()) * kPasses;
      for (const bool unwritten : {false, true}) {
        const Tensor found = trained(x, weight, gradient, transposed, add, unwritten);
        const double error = ((found.cpu() - expected).abs() / magnitudes).max().item<double>();
        const std::string what = "gradient of a weight, " + std::to_string(shape.rows) + " x " +
                                 std::to_string(shape.in) + " -> " + std::to_string(shape.out) +
                                 (transposed ? "" : ", turned") + (unwritten ? ", unwritten" : "") +
                                 ": ";
        // A gradient that is not a number is no smaller than the bound.
        if (!(error <= product_error(shape.rows * kPasses))) {
          problems.push_back(what + "its error is " + std::to_string(error) + " of its addends");
        }
        if (!trained(x, weight, gradient, transposed, add, unwritten).equal(found)) {
          problems.push_back(what + "other bits the second time");
        }
      }
    }
  }
  return problems;
}

}  // namespace hpctl::testing
