// SPDX-License-Identifier: Apache-2.0
// Products with weights in bf16 on a GPU, whose gradients of weights are added to sums in fp32
// without being rounded to bf16 first. Autograd's own gradient of a weight in bf16 is bf16: with
// many micro-batches each product would be rounded before it is added, and pass through memory
// twice more.
//
// LibTorch multiplies bf16 into fp32 from 2.8 on. Only later releases add the product to a sum in
// fp32 in the same kernel; which ones is found out by a call, once in a process.
#pragma once

#include "trainer/compat/torch_compat.h"

namespace hpctl {

// sum [rows, columns] += a [rows, depth] b [depth, columns], or where it is the `first`, sum = a b,
// whatever was there; the sum in fp32, its operands in bf16. Begins its work on the device and
// returns; what it cannot do it throws as c10::Error, at once.
using AddWideProduct = void(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool first);

// Those of this LibTorch, the better one first. Null where it has none.
struct WideProducts {
  AddWideProduct* added;  // one kernel
  AddWideProduct* made;   // a product in fp32, and an addition
};
WideProducts libtorchs_wide_products();

// The first of them that the device takes; null where it takes none.
AddWideProduct* wide_product_that_works(const WideProducts& products, at::Device device);

// For this process's GPU; null on another device. The log says which way was found.
AddWideProduct* wide_product_of(at::Device device);

// x [..., in] times a weight in bf16, [in, out] or, where `transposed`, [out, in]; bias [out] or
// undefined -> [..., out]. The weight's gradient is as of weight_gradient(): where none is attached
// autograd gets one in bf16.
at::Tensor wide_projection(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           bool transposed, AddWideProduct* add);

// The gradient of a weight, a b; undefined where `add` has added it to the one in fp32 that is
// attached, which may be unwritten (gradient_memory.h).
at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b,
                           AddWideProduct* add);

}  // namespace hpctl
