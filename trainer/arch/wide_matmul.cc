// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/wide_matmul.h"

#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <vector>

#include "common/base/log.h"
#include "trainer/arch/gradient_memory.h"

namespace hpctl {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct WideProjection : torch::autograd::Function<WideProjection> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, bool transposed, AddWideProduct* add) {
    context->save_for_backward({x, weight, bias});
    context->saved_data["transposed"] = transposed;
    context->saved_data["add"] = reinterpret_cast<int64_t>(add);
    const Tensor factor = transposed ? weight.t() : weight;
    return bias.numel() > 0 ? at::addmm(bias, x, factor) : at::mm(x, factor);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const bool transposed = context->saved_data["transposed"].toBool();
    auto* const add = reinterpret_cast<AddWideProduct*>(context->saved_data["add"].toInt());
    const Tensor& x = saved[0];
    const Tensor& weight = saved[1];
    const Tensor& gradient = gradients[0];
    variable_list results(5);
    if (x.requires_grad()) results[0] = at::mm(gradient, transposed ? weight : weight.t());
    if (weight.requires_grad()) {
      results[1] = transposed ? weight_gradient(weight, gradient.t(), x, add)
                              : weight_gradient(weight, x.t(), gradient, add);
    }
    if (saved[2].requires_grad()) results[2] = gradient.sum(0);
    return results;
  }
};

bool is_taken(AddWideProduct* add, at::Device device) {
  if (add == nullptr) return false;
  constexpr int64_t kSize = 16;
  const auto zeros = [&](at::ScalarType type) {
    return at::zeros({kSize, kSize}, at::TensorOptions(type).device(device));
  };
  Tensor sum = zeros(at::kFloat);
  try {
    for (const bool first : {true, false}) {
      add(sum, zeros(at::kBFloat16).t(), zeros(at::kBFloat16), first);
    }
    return true;
  } catch (const c10::OutOfMemoryError&) {
    throw;  // says nothing of the product
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

WideProducts libtorchs_wide_products() {
  if (!compat::kHasWideProducts) return {nullptr, nullptr};
  return {&compat::add_wide_product, &compat::make_and_add_wide_product};
}

AddWideProduct* wide_product_that_works(const WideProducts& products, at::Device device) {
  const c10::NoGradGuard no_grad;
  if (is_taken(products.added, device)) return products.added;
  return is_taken(products.made, device) ? products.made : nullptr;
}

AddWideProduct* wide_product_of(at::Device device) {
  if (!device.is_cuda()) return nullptr;
  static AddWideProduct* const found = [&] {
    const WideProducts products = libtorchs_wide_products();
    AddWideProduct* const add = wide_product_that_works(products, device);
    log_info(std::string("gradients of weights in bf16: ") +
             (add == nullptr          ? "rounded to bf16, then added in fp32"
              : add == products.added ? "added in fp32 by their products"
                                      : "products in fp32, then added"));
    return add;
  }();
  return found;
}

Tensor weight_gradient(const Tensor& weight, const Tensor& a, const Tensor& b,
                       AddWideProduct* add) {
  Tensor& attached = weight.mutable_grad();
  if (!attached.defined() || attached.scalar_type() != at::kFloat) return at::mm(a, b);
  add(attached, a, b, take_unwritten(attached));
  return {};
}

Tensor wide_projection(const Tensor& x, const Tensor& weight, const Tensor& bias, bool transposed,
                       AddWideProduct* add) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(transposed ? 0 : 1);
  const Tensor addend = bias.defined() ? bias : weight.detach().new_empty({0});
  return WideProjection::apply(x.reshape({-1, x.size(-1)}), weight, addend, transposed, add)
      .view(shape);
}

}  // namespace hpctl
