// SPDX-License-Identifier: Apache-2.0
// The operations of fused_ops.h, and rotary positions, by the kernels of a GPU
// (trainer/device/device_kernels.h), with their gradients. In fp32, bf16 and fp16; sums are in
// fp32, and results and gradients are rounded once. Nothing here waits for the GPU. A test runs
// them on host memory.
#pragma once

#include "trainer/arch/fused_ops.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/device/device_kernels.h"

namespace hpctl::on_device {

// Of at::kFloat, at::kBFloat16 and at::kHalf.
Element element_of(at::ScalarType type);

at::Tensor rms_norm(const DeviceKernels& kernels, const at::Tensor& x, const at::Tensor& weight,
                    double eps);
// As fused_residual_rms_norm(): one kernel forward and one backward.
ResidualNorm residual_rms_norm(const DeviceKernels& kernels, const at::Tensor& x,
                               const at::Tensor& addend, const at::Tensor& weight, double eps);
at::Tensor swiglu(const DeviceKernels& kernels, const at::Tensor& gate, const at::Tensor& up);
// Not a number where a target is not one of the words.
FusedLoss cross_entropy(const DeviceKernels& kernels, const at::Tensor& logits,
                        const at::Tensor& targets, double z_loss);
// x: [B, T, heads, h]; cos, sin: [length, 1, h] in fp32, both halves of a row the same; positions:
// [B, T] int64, or undefined: the positions of T = length tokens. -> as x
at::Tensor rotary(const DeviceKernels& kernels, const at::Tensor& x, const at::Tensor& cos,
                  const at::Tensor& sin, const at::Tensor& positions);

}  // namespace hpctl::on_device
