// SPDX-License-Identifier: Apache-2.0
// ATen's operations that a CPU does not have in fp16 in every release (1.13: none of these), and
// products in bf16, which ATen computes slower than in fp32 without matrix units. They are computed
// in fp32 from the narrow operands and rounded once, forward and backward, like the matrix units of
// a GPU: products in fp16 overflow and vanish as on those.
//
// Products of bf16 with weights use trainer/kernels/matmul.h if bf16_products() says so, which
// also has a bound of the error of sums in fp32. Products with weights on a CPU, except in fp16,
// add the weight's gradient to the one attached to it (at::Tensor::grad(), fp32 or fp64), so
// autograd has nothing to do with it. Products with weights in bf16 on a GPU do the same if
// LibTorch can (wide_matmul.h). All else is plain ATen.
#pragma once

#include <vector>

#include "trainer/compat/torch_compat.h"

namespace hpctl::ops {

// The batch dimensions of both are equal.
at::Tensor matmul(const at::Tensor& a, const at::Tensor& b);
// x [..., in], weight [out, in], bias [out] or undefined -> [..., out]
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
// linear() of each; a bias may be undefined. On a CPU with the same bits. On matrix units the
// gradient of x is one array, to which each product is added, from the last to the first, as
// autograd adds them. On a GPU one product does it where that pays (joined_projections.h): the
// gradient of x is then rounded once.
std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                const std::vector<at::Tensor>& biases);
// bias [out] or undefined, x [rows, in], weight [in, out] -> [rows, out]
at::Tensor addmm(const at::Tensor& bias, const at::Tensor& x, const at::Tensor& weight);
at::Tensor silu(const at::Tensor& x);
// In its tanh form.
at::Tensor gelu(const at::Tensor& x);
// Over the last dimension.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double eps);

}  // namespace hpctl::ops
