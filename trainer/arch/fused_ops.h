// SPDX-License-Identifier: Apache-2.0
// trainer/kernels/rowwise.h as operations with gradients, for tensors on the CPU, and a GPU's
// kernels (cuda_ops.h) for tensors there. Each has the same bits with any number of threads.
// Autograd keeps their operands and a number per row. In bf16 and fp16 they compute in fp32, and
// results and gradients are rounded once: rows of bf16 are read and written as they are, rows of
// fp16 are copied.
#pragma once

#include "trainer/compat/torch_compat.h"

namespace hpctl {

// Returns whether there are any for tensors there of this type.
bool has_fused_rows(at::Device device, at::ScalarType type);

// x: [..., dim], weight: [dim] -> as x
at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
// The beginning of a branch: `residual` is x, or x + addend if that is defined, of the same sizes;
// `normed` is fused_rms_norm() of it. The bits are the same as with two operations. They are one
// pass, and the backward pass adds the other gradient of the residual stream where it writes the
// norm's. In fp16 on a CPU they are two passes.
struct ResidualNorm {
  at::Tensor residual;
  at::Tensor normed;
};
ResidualNorm fused_residual_rms_norm(const at::Tensor& x, const at::Tensor& addend,
                                     const at::Tensor& weight, double eps);
// silu(gate) * up, of the same sizes
at::Tensor fused_swiglu(const at::Tensor& gate, const at::Tensor& up);

struct FusedLoss {
  at::Tensor entropy;    // no gradient passes through it
  at::Tensor objective;  // entropy + z_loss * the squares of the logarithms of sums
};
// Returns whether fused_cross_entropy() takes logits of this type there: kernels widen as they
// read, whereas a copy of the logits in fp32, and its gradient, would be most of the loss's memory.
// A CPU's do not read fp16.
bool has_fused_loss(at::Device device, at::ScalarType type);
// logits: [rows, vocab], targets: [rows] int64 -> sums over the rows that are counted (targets.h),
// fp32 unless the logits are fp64. Backward writes their gradient over logits that an operation
// made (logits_gradient.h): read such logits before, and go back once.
FusedLoss fused_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, double z_loss);

}  // namespace hpctl
