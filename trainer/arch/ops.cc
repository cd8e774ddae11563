// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/ops.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trainer/arch/element_data.h"
#include "trainer/arch/joined_projections.h"
#include "trainer/arch/model.h"
#include "trainer/arch/wide_matmul.h"
#include "trainer/kernels/level.h"
#include "trainer/kernels/matmul.h"

namespace hpctl::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool is_half_on_cpu(const Tensor& x) { return x.scalar_type() == at::kHalf && x.device().is_cpu(); }

// Whether the matrix units of a CPU compute products of x.
bool uses_amx(const Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kBFloat16 &&
         bf16_products() == Bf16Products::kMatrixUnits;
}

// Whether products of x are computed from widened operands.
bool is_widened(const Tensor& x) {
  return is_half_on_cpu(x) ||
         (x.device().is_cpu() && x.scalar_type() == at::kBFloat16 && !uses_amx(x));
}

// x as an operand of trainer/kernels/matmul.h, copied where neither direction is contiguous;
// `kept` then has the copy.
Bf16Matrix matrix_of(const Tensor& x, Tensor& kept) {
  const bool across = x.stride(0) == 1 && x.stride(1) > 1;
  kept = across || x.stride(1) == 1 ? x : x.contiguous();
  return {data_of<uint16_t>(kept), kept.stride(across ? 1 : 0), across};
}

// work(product, first) for rows of a b from `first` on, on LibTorch's threads.
template <typename Work>
void for_product_rows(const Tensor& a, const Tensor& b, const Work& work) {
  constexpr int64_t kWorthAThread = 1 << 24;  // multiplications
  Tensor kept[2];
  const Bf16Matrix left = matrix_of(a, kept[0]);
  const Bf16Matrix right = matrix_of(b, kept[1]);
  const int64_t least = std::max<int64_t>(32, kWorthAThread / (b.size(0) * b.size(1)));
  at::parallel_for(0, a.size(0), least, [&](int64_t first, int64_t end) {
    work(Bf16Product{.rows = end - first,
                     .columns = b.size(1),
                     .depth = b.size(0),
                     .a = {left.at(first, 0), left.stride, left.transposed},
                     .b = right},
         first);
  });
}

// a [rows, depth] b [depth, columns] by the matrix units; bias [columns] or undefined.
Tensor product_by_amx(const Tensor& a, const Tensor& b, const Tensor& bias = {}) {
  const Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  const Tensor addend = bias.defined() ? bias.contiguous() : bias;
  for_product_rows(a, b, [&](const Bf16Product& product, int64_t first) {
    multiply(product, addend.defined() ? data_of<uint16_t>(addend) : nullptr,
             data_of<uint16_t>(result) + first * result.size(1));
  });
  return result;
}

// Rounded and added to `sum`, contiguous, which is made where it is undefined.
void add_rounded_product_by_amx(const Tensor& a, const Tensor& b, Tensor& sum) {
  if (!sum.defined()) {
    sum = product_by_amx(a, b);
    return;
  }
  for_product_rows(a, b, [&](const Bf16Product& product, int64_t first) {
    add_rounded_product(product, data_of<uint16_t>(sum) + first * sum.size(1));
  });
}

// Added to `sum`, contiguous and of fp32.
void add_product_by_amx(const Tensor& a, const Tensor& b, Tensor& sum) {
  for_product_rows(a, b, [&](const Bf16Product& product, int64_t first) {
    add_product(product, sum.data_ptr<float>() + first * sum.size(1));
  });
}

Tensor half(const Tensor& x) { return x.to(at::kHalf); }

// Separate nodes, because autograd would keep the widened operands: a weight's would outlive its
// release after the forward pass.
struct WidenedProduct : torch::autograd::Function<WidenedProduct> {
  static Tensor forward(AutogradContext* context, const Tensor& a, const Tensor& b) {
    context->save_for_backward({a, b});
    return at::matmul(widened(a), widened(b)).to(a.scalar_type());
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::ScalarType type = saved[0].scalar_type();
    const Tensor gradient = widened(gradients[0]);
    return {at::matmul(gradient, widened(saved[1]).transpose(-1, -2)).to(type),
            at::matmul(widened(saved[0]).transpose(-1, -2), gradient).to(type)};
  }
};

// The gradient of a weight, a b; undefined where it has been added to the attached one.
Tensor of_weight_by_amx(const Tensor& weight, const Tensor& a, const Tensor& b) {
  Tensor& attached = weight.mutable_grad();
  const bool fits =
      attached.defined() && attached.scalar_type() == at::kFloat && attached.is_contiguous();
  if (!fits) return product_by_amx(a, b);
  add_product_by_amx(a, b, attached);
  return {};
}

Tensor of_bias(const Tensor& gradient) {
  return widened(gradient).sum(0).to(gradient.scalar_type());
}

// x [rows, in] times a weight, [in, out] or, if `transposed`, [out, in]; bias [out] or undefined.
//
// The product itself adds a weight's gradient to the one that the engine has attached for it.
// Autograd would write the product to separate memory and add that in a second pass. That takes
// longer than the product if there are few rows, and rounds it first if the weight is in bf16. In
// fp16 it does so: the loss scale detects an overflow by it.
struct Projection : torch::autograd::Function<Projection> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, bool transposed) {
    context->save_for_backward({x, weight, bias});
    context->saved_data["transposed"] = transposed;
    if (uses_amx(x)) {
      return product_by_amx(x, transposed ? weight.t() : weight,
                            bias.numel() > 0 ? bias : Tensor());
    }
    const Tensor wide = widened(weight);
    const Tensor factor = transposed ? wide.t() : wide;
    const Tensor product = bias.numel() > 0 ? at::addmm(widened(bias), widened(x), factor)
                                            : at::mm(widened(x), factor);
    return product.to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const bool transposed = context->saved_data["transposed"].toBool();
    const at::ScalarType type = saved[0].scalar_type();
    if (uses_amx(saved[0])) return backward_by_amx(saved, gradients[0], transposed);
    const Tensor gradient = widened(gradients[0]);
    variable_list results(4);
    if (saved[0].requires_grad()) {
      const Tensor weight = widened(saved[1]);
      results[0] = at::mm(gradient, transposed ? weight : weight.t()).to(type);
    }
    if (saved[1].requires_grad()) {
      const Tensor x = widened(saved[0]);
      results[1] =
          transposed ? of_weight(saved[1], gradient.t(), x) : of_weight(saved[1], x.t(), gradient);
    }
    if (saved[2].requires_grad()) results[2] = gradient.sum(0).to(type);
    return results;
  }

  static variable_list backward_by_amx(const variable_list& saved, const Tensor& gradient,
                                       bool transposed) {
    const Tensor& x = saved[0];
    const Tensor& weight = saved[1];
    variable_list results(4);
    if (x.requires_grad()) {
      results[0] = product_by_amx(gradient, transposed ? weight : weight.t());
    }
    if (weight.requires_grad()) {
      results[1] = transposed ? of_weight_by_amx(weight, gradient.t(), x)
                              : of_weight_by_amx(weight, x.t(), gradient);
    }
    if (saved[2].requires_grad()) results[2] = of_bias(gradient);
    return results;
  }

  // Undefined where it has been added to the attached one.
  static Tensor of_weight(const Tensor& weight, const Tensor& a, const Tensor& b) {
    Tensor& attached = weight.mutable_grad();
    const bool fits = attached.defined() && attached.scalar_type() == a.scalar_type();
    if (!fits || is_half_on_cpu(weight)) return at::mm(a, b).to(weight.scalar_type());
    attached.addmm_(a, b);
    return {};
  }
};

// x [rows, in] times several weights [out, in], each with a bias [out] or an empty one.
struct ProjectionsOnUnits : torch::autograd::Function<ProjectionsOnUnits> {
  static variable_list forward(AutogradContext* context, const Tensor& x, at::TensorList weights,
                               at::TensorList biases) {
    variable_list saved = {x};
    saved.insert(saved.end(), weights.begin(), weights.end());
    saved.insert(saved.end(), biases.begin(), biases.end());
    context->save_for_backward(saved);
    variable_list results;
    for (size_t i = 0; i < weights.size(); ++i) {
      results.push_back(
          product_by_amx(x, weights[i].t(), biases[i].numel() > 0 ? biases[i] : Tensor()));
    }
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor& x = saved[0];
    const size_t count = gradients.size();
    variable_list results(1 + 2 * count);
    for (size_t i = count; i > 0; --i) {
      const Tensor& gradient = gradients[i - 1];
      const Tensor& weight = saved[i];
      if (x.requires_grad()) add_rounded_product_by_amx(gradient, weight, results[0]);
      if (weight.requires_grad()) results[i] = of_weight_by_amx(weight, gradient.t(), x);
      if (saved[count + i].requires_grad()) results[count + i] = of_bias(gradient);
    }
    return results;
  }
};

struct HalfGelu : torch::autograd::Function<HalfGelu> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return half(at::gelu(widened(x), "tanh"));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor x = widened(context->get_saved_variables()[0]);
    return {half(at::gelu_backward(widened(gradients[0]), x, "tanh"))};
  }
};

struct HalfSilu : torch::autograd::Function<HalfSilu> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return half(at::silu(widened(x)));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor x = widened(context->get_saved_variables()[0]);
    return {half(at::silu_backward(widened(gradients[0]), x))};
  }
};

Tensor as_rows(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// Null where autograd's own gradients of weights are to be had.
AddWideProduct* wide_product_for(const Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? wide_product_of(x.device()) : nullptr;
}

Tensor linear_on_device(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (AddWideProduct* const add = wide_product_for(x)) {
    return wide_projection(x, weight, bias, /*transposed=*/true, add);
  }
  return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
}

// No bias, as nodes take it.
Tensor bias_or_empty(const Tensor& bias, const Tensor& weight) {
  return bias.defined() ? bias : weight.detach().new_empty({0});
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  return is_widened(a) ? WidenedProduct::apply(a, b) : at::matmul(a, b);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!x.device().is_cpu()) return linear_on_device(x, weight, bias);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  return Projection::apply(as_rows(x), weight, bias_or_empty(bias, weight), /*transposed=*/true)
      .view(shape);
}

variable_list linears(const Tensor& x, const variable_list& weights, const variable_list& biases) {
  variable_list results;
  if (!x.device().is_cpu() && worth_joining(x, weights, biases)) {
    return joined_projections(x, weights, biases, wide_product_for(x));
  }
  if (!uses_amx(x)) {
    for (size_t i = 0; i < weights.size(); ++i) {
      results.push_back(linear(x, weights[i], biases[i]));
    }
    return results;
  }
  variable_list addends = biases;
  for (size_t i = 0; i < weights.size(); ++i) addends[i] = bias_or_empty(biases[i], weights[i]);
  results = ProjectionsOnUnits::apply(as_rows(x), at::TensorList(weights), at::TensorList(addends));
  std::vector<int64_t> shape = x.sizes().vec();
  for (Tensor& result : results) {
    shape.back() = result.size(-1);
    result = result.view(shape);
  }
  return results;
}

Tensor addmm(const Tensor& bias, const Tensor& x, const Tensor& weight) {
  if (x.device().is_cpu()) {
    return Projection::apply(x, weight, bias_or_empty(bias, weight), /*transposed=*/false);
  }
  if (AddWideProduct* const add = wide_product_for(x)) {
    return wide_projection(x, weight, bias, /*transposed=*/false, add);
  }
  return bias.defined() ? at::addmm(bias, x, weight) : at::mm(x, weight);
}

Tensor gelu(const Tensor& x) {
  return is_half_on_cpu(x) ? HalfGelu::apply(x) : at::gelu(x, "tanh");
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const std::vector<int64_t> shape = {x.size(-1)};
  if (!is_half_on_cpu(x)) return at::layer_norm(x, shape, weight, bias, eps);
  return half(at::layer_norm(widened(x), shape, widened(weight), widened(bias), eps));
}

Tensor silu(const Tensor& x) { return is_half_on_cpu(x) ? HalfSilu::apply(x) : at::silu(x); }

}  // namespace hpctl::ops
