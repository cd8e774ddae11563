// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/joined_projections.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "common/base/check.h"
#include "trainer/arch/gradient_memory.h"

namespace hpctl {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<int64_t> rows_of(at::TensorList matrices) {
  std::vector<int64_t> rows;
  for (const Tensor& matrix : matrices) rows.push_back(matrix.size(0));
  return rows;
}

int64_t all_rows(at::TensorList matrices) {
  int64_t rows = 0;
  for (const Tensor& matrix : matrices) rows += matrix.size(0);
  return rows;
}

// Copied where they do not follow one another.
Tensor one_matrix(at::TensorList matrices) {
  const Tensor joined = joined_rows(matrices);
  return joined.defined() ? joined : at::cat(matrices, 0);
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
                               at::TensorList biases, AddWideProduct* add) {
    variable_list saved = {x};
    saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(saved);
    context->saved_data["biased"] = !biases.empty();
    context->saved_data["add"] = reinterpret_cast<int64_t>(add);
    const Tensor factor = one_matrix(weights).t();
    const Tensor product =
        biases.empty() ? at::mm(x, factor) : at::addmm(at::cat(biases, 0), x, factor);
    return columns_of(product, rows_of(weights));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const bool biased = context->saved_data["biased"].toBool();
    auto* const add = reinterpret_cast<AddWideProduct*>(context->saved_data["add"].toInt());
    const Tensor& x = saved[0];
    const variable_list weights(saved.begin() + 1, saved.end());
    const Tensor gradient = joined_columns(gradients);
    variable_list results(1 + weights.size() * (biased ? 2 : 1) + 1);
    if (x.requires_grad()) results[0] = at::mm(gradient, one_matrix(weights));
    if (!weights.front().requires_grad()) return results;
    const variable_list of_weights = weight_gradients(weights, gradient, x, add);
    const auto after = std::copy(of_weights.begin(), of_weights.end(), results.begin() + 1);
    if (!biased) return results;
    const variable_list of_biases = gradient.sum(0).split_with_sizes(rows_of(weights));
    std::copy(of_biases.begin(), of_biases.end(), after);
    return results;
  }

  // Undefined are those that have been added to the attached ones.
  static variable_list weight_gradients(const variable_list& weights, const Tensor& gradient,
                                        const Tensor& x, AddWideProduct* add) {
    if (add == nullptr) return at::mm(gradient.t(), x).split_with_sizes(rows_of(weights));
    if (Tensor attached = joined_attached(weights); attached.defined()) {
      add(attached, gradient.t(), x, take_unwritten(attached));
      return variable_list(weights.size());
    }
    const variable_list columns = gradient.split_with_sizes(rows_of(weights), 1);
    variable_list found;
    for (size_t i = 0; i < weights.size(); ++i) {
      found.push_back(weight_gradient(weights[i], columns[i].t(), x, add));
    }
    return found;
  }

  // Undefined where there are none in fp32, or none that follow one another.
  static Tensor joined_attached(const variable_list& weights) {
    variable_list attached;
    for (const Tensor& weight : weights) {
      attached.push_back(weight.mutable_grad());
      if (!attached.back().defined() || attached.back().scalar_type() != at::kFloat) return {};
    }
    return joined_rows(attached);
  }
};

}  // namespace

Tensor joined_rows(at::TensorList matrices) {
  const Tensor& first = matrices.front();
  int64_t rows = 0;
  for (const Tensor& matrix : matrices) {
    const bool follows =
        matrix.dim() == 2 && matrix.is_contiguous() && matrix.size(1) == first.size(1) &&
        matrix.scalar_type() == first.scalar_type() && share_storage(matrix, first) &&
        matrix.storage_offset() == first.storage_offset() + rows * first.size(1);
    if (!follows) return {};
    rows += matrix.size(0);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return first.as_strided({rows, first.size(1)}, {first.size(1), 1}, first.storage_offset());
}

bool worth_joining(const Tensor& x, const variable_list& weights, const variable_list& biases) {
  const bool learns = weights.front().requires_grad();
  const bool biased = biases.front().defined();
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].requires_grad() != learns || biases[i].defined() != biased) return false;
    if (biased && biases[i].requires_grad() != learns) return false;
  }
  // A copy is written and read, forward and backward; without one, each product's gradient of x but
  // the first is written, read and added.
  return joined_rows(weights).defined() || x.numel() / x.size(-1) >= all_rows(weights);
}

variable_list joined_projections(const Tensor& x, const variable_list& weights,
                                 const variable_list& biases, AddWideProduct* add) {
  HP_CHECK(weights.size() == biases.size());
  const bool biased = biases.front().defined();
  variable_list results =
      JoinedProjections::apply(x.reshape({-1, x.size(-1)}), at::TensorList(weights),
                               biased ? at::TensorList(biases) : at::TensorList(), add);
  std::vector<int64_t> shape = x.sizes().vec();
  for (Tensor& result : results) {
    shape.back() = result.size(-1);
    result = result.view(shape);
  }
  return results;
}

}  // namespace hpctl
