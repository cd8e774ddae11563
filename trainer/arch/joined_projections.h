// SPDX-License-Identifier: Apache-2.0
// Projections of the same activations on a GPU as one product forward and two backward, instead of
// as many for each weight: q, k and v, gate and up. The gradient of the activations is one product
// too, so it is rounded once, and nothing is added afterwards.
//
// Weights that follow one another in a block's flat layout are one matrix as they are. Others, with
// biases between them, are copied into one, if there are so many rows of activations that the copy
// costs less than what it saves. Their gradients are products of their own then.
#pragma once

#include <vector>

#include "trainer/arch/wide_matmul.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl {

// x [..., in]; weights [out, in] of any type; biases [out], or undefined. False where these are not
// alike, or where joining costs more than it saves.
bool worth_joining(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                   const std::vector<at::Tensor>& biases);

// What is worth joining -> [..., out] for each weight: columns of one array, so the rows of a
// result are not dense. Gradients of weights go where those that are attached are, as in
// wide_projection(); without `add` autograd gets them.
std::vector<at::Tensor> joined_projections(const at::Tensor& x,
                                           const std::vector<at::Tensor>& weights,
                                           const std::vector<at::Tensor>& biases,
                                           AddWideProduct* add);

// Matrices of equal width and type that follow one another in one storage, as one matrix, unknown
// to autograd. Undefined where they do not.
at::Tensor joined_rows(at::TensorList matrices);

}  // namespace hpctl
