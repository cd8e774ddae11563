// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/wide_products.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/check.h"
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
      results[1] = transposed ? of_weight(weight, gradient.t(), x, add)
                              : of_weight(weight, x.t(), gradient, add);
    }
    if (saved[2].requires_grad()) results[2] = gradient.sum(0);
    return results;
  }

  // Undefined where it has been added to the attached one.
  static Tensor of_weight(const Tensor& weight, const Tensor& a, const Tensor& b,
                          AddWideProduct* add) {
    Tensor& attached = weight.mutable_grad();
    if (!attached.defined() || attached.scalar_type() != at::kFloat) return at::mm(a, b);
    add(attached, a, b, take_unwritten(attached));
    return {};
  }
};

std::vector<int64_t> rows_of(at::TensorList matrices) {
  std::vector<int64_t> rows;
  for (const Tensor& matrix : matrices) rows.push_back(matrix.size(0));
  return rows;
}

// Its columns, `widths` of them each, unknown to autograd.
variable_list columns_of(const Tensor& matrix, const std::vector<int64_t>& widths) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  variable_list columns;
  int64_t first = 0;
  for (const int64_t width : widths) {
    columns.push_back(matrix.narrow(1, first, width));
    first += width;
  }
  return columns;
}

bool share_storage(const Tensor& a, const Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

// Matrices beside one another as one. Where they are the columns of one array, nothing is copied.
Tensor joined_columns(const variable_list& matrices) {
  const Tensor& first = matrices.front();
  int64_t width = 0;
  bool columns = true;
  for (const Tensor& matrix : matrices) {
    columns = columns && share_storage(matrix, first) && matrix.stride(1) == 1 &&
              matrix.stride(0) == first.stride(0) &&
              matrix.storage_offset() == first.storage_offset() + width;
    width += matrix.size(1);
  }
  if (!columns || first.stride(0) != width) return at::cat(matrices, 1);
  return first.as_strided({first.size(0), width}, {width, 1}, first.storage_offset());
}

struct JoinedProjections : torch::autograd::Function<JoinedProjections> {
  static variable_list forward(AutogradContext* context, const Tensor& x, at::TensorList weights,
                               AddWideProduct* add) {
    variable_list saved = {x};
    saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(saved);
    context->saved_data["add"] = reinterpret_cast<int64_t>(add);
    return columns_of(at::mm(x, joined_rows(weights).t()), rows_of(weights));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    auto* const add = reinterpret_cast<AddWideProduct*>(context->saved_data["add"].toInt());
    const Tensor& x = saved[0];
    const variable_list weights(saved.begin() + 1, saved.end());
    const Tensor gradient = joined_columns(gradients);
    variable_list results(weights.size() + 2);
    if (x.requires_grad()) results[0] = at::mm(gradient, joined_rows(weights));
    if (!weights.front().requires_grad()) return results;
    if (Tensor attached = attached_to(weights); add != nullptr && attached.defined()) {
      add(attached, gradient.t(), x, take_unwritten(attached));
      return results;
    }
    const variable_list each = at::mm(gradient.t(), x).split_with_sizes(rows_of(weights));
    std::copy(each.begin(), each.end(), results.begin() + 1);
    return results;
  }

  // Undefined where there are none in fp32, or none that follow one another.
  static Tensor attached_to(const variable_list& weights) {
    variable_list attached;
    for (const Tensor& weight : weights) {
      attached.push_back(weight.mutable_grad());
      if (!attached.back().defined() || attached.back().scalar_type() != at::kFloat) return {};
    }
    return joined_rows(attached);
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

Tensor joined_rows(at::TensorList matrices) {
  const Tensor& first = matrices.front();
  int64_t rows = 0;
  for (const Tensor& matrix : matrices) {
    const bool follows =
        matrix.dim() == 2 && matrix.is_contiguous() && matrix.size(1) == first.size(1) &&
        matrix.scalar_type() == first.scalar_type() &&
        matrix.requires_grad() == first.requires_grad() && share_storage(matrix, first) &&
        matrix.storage_offset() == first.storage_offset() + rows * first.size(1);
    if (!follows) return {};
    rows += matrix.size(0);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return first.as_strided({rows, first.size(1)}, {first.size(1), 1}, first.storage_offset());
}

variable_list joined_projections(const Tensor& x, const variable_list& weights,
                                 AddWideProduct* add) {
  HP_CHECK(joined_rows(weights).defined());
  variable_list results =
      JoinedProjections::apply(x.reshape({-1, x.size(-1)}), at::TensorList(weights), add);
  std::vector<int64_t> shape = x.sizes().vec();
  for (Tensor& result : results) {
    shape.back() = result.size(-1);
    result = result.view(shape);
  }
  return results;
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
