// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/kernel_cases.h"

#include <algorithm>
#include <array>
#include <limits>
#include <sstream>
#include <utility>

#include "trainer/arch/attention.h"
#include "trainer/arch/cuda_ops.h"
#include "trainer/arch/joined_projections.h"
#include "trainer/arch/targets.h"

namespace hpctl::testing {

using at::Tensor;

namespace {

constexpr std::array kTypes = {at::kFloat, at::kBFloat16, at::kHalf};

std::vector<TypeBound> bounds_of_rows() {
  std::vector<TypeBound> bounds;
  for (const at::ScalarType type : kTypes) {
    bounds.push_back({type, device_row_bound(on_device::element_of(type))});
  }
  return bounds;
}

std::vector<TypeBound> bounds_of_attention() {
  std::vector<TypeBound> bounds;
  for (const at::ScalarType type : kTypes) bounds.push_back({type, gpu_attention_bound(type)});
  return bounds;
}

// Where there are many rows the sum over them is what is tried: it is rounded last.
std::vector<TypeBound> bounds_in_fp32() { return {bounds_of_rows().front()}; }

Operands on(at::Device device, const Operands& operands) {
  Operands made;
  for (const Tensor& x : operands) made.push_back(x.to(device));
  return made;
}

Tensor documents_of(const std::vector<int64_t>& lengths, int64_t sequences) {
  std::vector<Tensor> positions;
  for (const int64_t length : lengths) positions.push_back(at::arange(length));
  return at::cat(positions).view({sequences, -1});
}

}  // namespace

double apart(const Tensor& found, const Tensor& expected) {
  const Tensor difference = (found.to(at::kDouble) - expected).abs();
  if (difference.isnan().any().item<bool>()) return std::numeric_limits<double>::quiet_NaN();
  return (difference.max() / expected.abs().max()).item<double>();
}

Operands in_type(const Operands& operands, at::ScalarType type) {
  Operands made;
  for (const Tensor& x : operands) made.push_back(x.is_floating_point() ? x.to(type) : x);
  return made;
}

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

std::string Comparison::text() const {
  std::ostringstream text;
  text << what << ": " << difference << " of " << bound;
  if (!right_type) text << ", of another type than its operands";
  if (!same_bits) text << ", other bits when it is repeated";
  return text.str();
}

std::vector<Comparison> compare(const KernelCase& one, at::Device device, const Repeat& repeat) {
  at::manual_seed(5);
  const Tensor like = one.definition(in_type(one.operands, at::kDouble));
  const Tensor direction = at::randn(like.sizes());
  std::vector<Comparison> made;
  for (const auto& [type, largest] : one.bounds) {
    const Operands given = in_type(one.operands, type);
    const Tensor gradient = direction.to(type);
    const Operands expected =
        results_of(one.definition, in_type(given, at::kDouble), gradient.to(at::kDouble));
    std::vector<Operands> found;
    repeat([&] {
      found.push_back(on(at::kCPU, results_of(one.kernel, on(device, given), gradient.to(device))));
    });
    for (size_t i = 0; i < expected.size(); ++i) {
      std::ostringstream what;
      what << one.what << ", " << type << ", " << i;
      Comparison result = {what.str(), apart(found[0][i], expected[i]), largest,
                           found[0][i].scalar_type() == type, true};
      for (const Operands& again : found) {
        result.same_bits = result.same_bits && at::equal(again[i], found[0][i]);
      }
      made.push_back(std::move(result));
    }
  }
  return made;
}

Tensor defined_rms_norm(const Operands& x) {
  return x[0] * at::rsqrt(x[0].square().mean(-1, true) + kNormEpsilon) * x[1];
}

Operands norm_operands(int64_t rows, int64_t dim) {
  at::manual_seed(1);
  return {at::randn({rows, dim}), at::randn({dim})};
}

std::vector<KernelCase> norm_cases(const DeviceKernels& kernels) {
  const Computation kernel = [&kernels](const Operands& x) {
    return on_device::rms_norm(kernels, x[0], x[1], kNormEpsilon);
  };
  std::vector<KernelCase> cases;
  for (const int64_t dim : {3, 64, 65, 200, 1024, 1032, 1033, 12104}) {
    cases.push_back({"rms_norm of " + std::to_string(dim), defined_rms_norm, kernel,
                     norm_operands(dim > 10000 ? 2 : 5, dim), bounds_of_rows()});
  }
  for (const int64_t rows : {1, 9, 4200}) {
    cases.push_back({"rms_norm of " + std::to_string(rows) + " rows", defined_rms_norm, kernel,
                     norm_operands(rows, 8), bounds_in_fp32()});
  }
  cases.push_back({"rms_norm of 515 wide rows", defined_rms_norm, kernel, norm_operands(515, 1040),
                   bounds_in_fp32()});
  return cases;
}

namespace {

// Residual stream, norm, and the gradients of `operands` (x, addend or none, weight) where both
// results are used.
Operands branch_of(const DeviceKernels& kernels, const Operands& operands, bool one_kernel) {
  Operands leaves;
  for (const Tensor& operand : operands) {
    leaves.push_back(operand.detach().clone().requires_grad_());
  }
  const Tensor addend = leaves.size() == 3 ? leaves[1] : Tensor();
  ResidualNorm both;
  if (one_kernel) {
    both =
        on_device::residual_rms_norm(kernels, leaves.front(), addend, leaves.back(), kNormEpsilon);
  } else {
    both.residual = addend.defined() ? leaves.front() + addend : leaves.front();
    both.normed = on_device::rms_norm(kernels, both.residual, leaves.back(), kNormEpsilon);
  }
  torch::autograd::backward({both.residual * 1, both.normed},
                            {both.residual.detach(), both.normed.detach()});
  Operands results = {both.residual.detach(), both.normed.detach()};
  for (const Tensor& leaf : leaves) results.push_back(leaf.grad());
  return results;
}

}  // namespace

std::vector<std::string> residual_norm_problems(const DeviceKernels& kernels, at::Device device,
                                                const Repeat& repeat) {
  std::vector<std::string> problems;
  for (const int64_t dim : {65, 200, 1032, 1033}) {
    at::manual_seed(7);
    const Operands all = {at::randn({5, dim}), at::randn({5, dim}), at::randn({dim})};
    for (const at::ScalarType type : kTypes) {
      for (const bool adds : {true, false}) {
        const Operands used = adds ? all : Operands{all[0], all[2]};
        const Operands operands = on(device, in_type(used, type));
        const Operands expected = branch_of(kernels, operands, /*one_kernel=*/false);
        repeat([&] {
          const Operands found = branch_of(kernels, operands, /*one_kernel=*/true);
          for (size_t i = 0; i < expected.size(); ++i) {
            if (at::equal(found[i], expected[i])) continue;
            std::ostringstream problem;
            problem << "residual norm of " << dim << (adds ? ", with" : ", without")
                    << " an addend, " << type << ", " << i << ": not the bits of two kernels";
            problems.push_back(problem.str());
          }
        });
      }
    }
  }
  return problems;
}

Tensor defined_swiglu(const Operands& x) { return x[0] * at::sigmoid(x[0]) * x[1]; }

Operands swiglu_operands(int64_t count) {
  at::manual_seed(2);
  return {at::randn({count}) * 4, at::randn({count})};
}

std::vector<KernelCase> swiglu_cases(const DeviceKernels& kernels) {
  const Computation kernel = [&kernels](const Operands& x) {
    return on_device::swiglu(kernels, x[0], x[1]);
  };
  std::vector<KernelCase> cases;
  for (const int64_t count : {1, 7, 8, 1027, 4096}) {
    cases.push_back({"swiglu of " + std::to_string(count), defined_swiglu, kernel,
                     swiglu_operands(count), bounds_of_rows()});
  }
  // As joined projections give them.
  const auto of_columns = [](const Computation& apart) -> Computation {
    return [apart](const Operands& x) { return apart(x[0].chunk(2, -1)); };
  };
  for (const int64_t width : {7, 8, 520}) {
    cases.push_back({"swiglu of columns of " + std::to_string(width),
                     of_columns(defined_swiglu),
                     of_columns(kernel),
                     {at::randn({2, 5, 2 * width})},
                     bounds_of_rows()});
  }
  return cases;
}

Tensor defined_losses(const Operands& x) {
  const Tensor log_sums = at::logsumexp(x[0], -1);
  const Tensor counted = x[1].ge(0);
  const Tensor at_target = x[0].gather(1, x[1].clamp_min(0).unsqueeze(1)).squeeze(1);
  const Tensor entropy = ((log_sums - at_target) * counted).sum();
  return at::stack({entropy.detach(), entropy + kZLoss * (log_sums.square() * counted).sum()});
}

Operands loss_operands(int64_t rows, int64_t vocab) {
  at::manual_seed(3);
  Tensor targets = at::randint(vocab, {rows}, at::kLong);
  targets[rows / 2] = kNotCounted;
  targets[0] = vocab - 1;
  return {at::randn({rows, vocab}) * 5, targets};
}

std::vector<KernelCase> loss_cases(const DeviceKernels& kernels) {
  const Computation kernel = [&kernels](const Operands& x) {
    const FusedLoss loss = on_device::cross_entropy(kernels, x[0], x[1], kZLoss);
    return at::stack({loss.entropy, loss.objective}).to(x[0].scalar_type());
  };
  std::vector<KernelCase> cases;
  for (const int64_t vocab : {2, 5, 16, 250, 4104}) {
    cases.push_back({"cross_entropy over " + std::to_string(vocab) + " words", defined_losses,
                     kernel, loss_operands(5, vocab), bounds_of_rows()});
  }
  cases.push_back({"cross_entropy of 300 rows", defined_losses, kernel, loss_operands(300, 9),
                   bounds_of_rows()});
  return cases;
}

Computation defined_rotary(const Tensor& angle, const Tensor& positions) {
  return [angle, positions](const Operands& x) {
    const Tensor turns = positions.defined() ? at::embedding(angle, positions) : angle;
    const Tensor both = at::cat({turns, turns}, -1).unsqueeze(-2);
    const auto halves = x[0].chunk(2, -1);
    const Tensor across = at::cat({-halves[1], halves[0]}, -1);
    return x[0] * both.cos() + across * both.sin();
  };
}

std::vector<KernelCase> rotary_cases(const DeviceKernels& kernels) {
  constexpr int64_t kTokens = 7;
  std::vector<KernelCase> cases;
  for (const int64_t size : {6, 16, 32}) {
    at::manual_seed(4);
    const Tensor angle = at::randn({kTokens, size / 2}, at::kDouble) * 3;
    const Tensor both = at::cat({angle, angle}, 1).unsqueeze(1);
    const Tensor cos = both.cos().to(at::kFloat);
    const Tensor sin = both.sin().to(at::kFloat);
    for (const Tensor& positions : {Tensor(), documents_of({3, 2, 2, 1, 6}, 2)}) {
      const Computation kernel = [&kernels, cos, sin, positions](const Operands& x) {
        const at::Device there = x[0].device();
        return on_device::rotary(kernels, x[0], cos.to(there), sin.to(there),
                                 positions.defined() ? positions.to(there) : positions);
      };
      cases.push_back({"rotary of heads of " + std::to_string(size) +
                           (positions.defined() ? " in documents" : ""),
                       defined_rotary(angle, positions),
                       kernel,
                       {at::randn({2, kTokens, 3, size})},
                       bounds_of_rows()});
      // As joined projections give it.
      const auto of_columns = [size](const Computation& dense) -> Computation {
        return [dense, size](const Operands& x) {
          return dense({x[0].narrow(-1, 8, 3 * size).view({2, kTokens, 3, size})});
        };
      };
      KernelCase columns = cases.back();
      columns.what += ", columns";
      columns.definition = of_columns(columns.definition);
      columns.kernel = of_columns(columns.kernel);
      columns.operands = {at::randn({2, kTokens, 3 * size + 16})};
      cases.push_back(std::move(columns));
    }
  }
  return cases;
}

namespace {

// By parts of one matrix [out, in], which follow one another, or in the other order, as weights do
// that have biases between them.
Computation projections_by(const std::vector<int64_t>& rows, bool biased) {
  return [rows, biased](const Operands& x) {
    Operands weights = x[1].split_with_sizes(rows);
    Operands biases = biased ? x[2].split_with_sizes(rows) : Operands(rows.size());
    if (biased) std::reverse(weights.begin(), weights.end());
    if (biased) std::reverse(biases.begin(), biases.end());
    Operands results = joined_projections(x[0], weights, biases, nullptr);
    if (biased) std::reverse(results.begin(), results.end());
    return at::cat(results, -1);
  };
}

}  // namespace

std::vector<KernelCase> projection_cases(at::Device device) {
  const Computation definition = [](const Operands& x) {
    return x.size() == 3 ? at::linear(x[0], x[1], x[2]) : at::linear(x[0], x[1]);
  };
  // Products of bf16 on a CPU are ops.h's matter.
  const std::vector<TypeBound> bounds = device.is_cpu() ? bounds_in_fp32() : bounds_of_rows();
  std::vector<KernelCase> cases;
  for (const bool biased : {false, true}) {
    at::manual_seed(8);
    Operands operands = {at::randn({2, 40, 48}), at::randn({64, 48})};
    if (biased) operands.push_back(at::randn({64}));
    cases.push_back({std::string("projections by 3 weights") + (biased ? ", with biases" : ""),
                     definition, projections_by({32, 16, 16}, biased), operands, bounds});
  }
  return cases;
}

std::vector<KernelCase> attention_cases(at::Device device) {
  constexpr int64_t kTokens = 150;
  constexpr int64_t kHeads = 4;
  constexpr int64_t kHeadDim = 32;
  const std::vector<int64_t> lengths = {150, 1, 99, 50, 70, 80};
  std::vector<KernelCase> cases;
  for (const int64_t kv_heads : {4, 2}) {
    for (const bool apart : {false, true}) {
      for (const int64_t window : {0, 33}) {
        ModelSpec model;
        model.arch = Arch::mistral;
        model.dim = kHeads * kHeadDim;
        model.heads = kHeads;
        model.kv_heads = kv_heads;
        model.sliding_window = window;
        const Documents documents = apart ? documents_at(documents_of(lengths, 3)) : Documents();
        const auto by = [=](at::Device where) {
          return [=](const Operands& x) {
            const CausalAttention attention(model, kTokens, x[0].scalar_type(), where);
            return attention(x[0], x[1], x[2], documents.on(where.str()));
          };
        };
        const std::string what = "attention, " + std::to_string(kv_heads) + " key heads, window " +
                                 std::to_string(window) + (apart ? ", documents" : "");
        at::manual_seed(6);
        cases.push_back({what,
                         by(at::kCPU),
                         by(device),
                         {at::randn({3, kTokens, kHeads, kHeadDim}),
                          at::randn({3, kTokens, kv_heads, kHeadDim}),
                          at::randn({3, kTokens, kv_heads, kHeadDim})},
                         bounds_of_attention()});
      }
    }
  }
  return cases;
}

}  // namespace hpctl::testing
