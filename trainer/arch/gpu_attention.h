// SPDX-License-Identifier: Apache-2.0
// Whether this GPU and its LibTorch can do what workload.train.gpu.attention requests. The GPUs,
// types and head dimensions that a kernel takes differ between releases. So LibTorch is tried,
// once, by a call forward and backward: a job must be refused when it starts, not in its first
// step, and must never get another kernel than the one it named (docs/decisions/1405-gpu-keys.md).
// With `auto` and `deterministic: true`, the check also covers a kernel in a fixed order for heads
// that FlashAttention does not take.
#pragma once

#include "common/base/result.h"
#include "common/job/train_spec.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl {

// Like fused_causal_attention() of torch_compat.h, by the one kernel that the device was set to.
using AttendByOneKernel = at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     double scale);

// LibTorch's; null if it cannot be pinned to one kernel.
AttendByOneKernel* pinned_attention();

// kInvalidArgument names the key, the problem and the remedy. The device must be set already
// (TorchDevice), except for auto and products. `compute`: the type of activations. A test passes
// its own `attend`.
Outcome check_gpu_attention(const TrainSpec& train, at::ScalarType compute, at::Device device,
                            AttendByOneKernel* attend = pinned_attention());

}  // namespace hpctl
