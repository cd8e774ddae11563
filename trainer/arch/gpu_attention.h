// SPDX-License-Identifier: Apache-2.0
// Whether this GPU and its LibTorch do what workload.train.gpu.attention asks for. Which GPUs,
// types and head dimensions a kernel takes differs between releases, so LibTorch is asked, once, by
// a call forward and backward: a job shall be refused when it starts, not in its first step, and
// never be given another kernel than the one it named (docs/decisions/1405-gpu-keys.md). Likewise
// whether there is a kernel in a fixed order for heads that FlashAttention does not take, where the
// job says `auto` and `deterministic: true`.
#pragma once

#include "common/base/result.h"
#include "common/base/train_spec.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl {

// As fused_causal_attention() of torch_compat.h, by the one kernel that the device was told.
using AttendByOneKernel = at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     double scale);

// LibTorch's; null where it cannot be told one kernel.
AttendByOneKernel* pinned_attention();

// kInvalidArgument names the key, what is wrong and what to do. On a device that is told already
// (TorchDevice), which auto and products need not be. `compute`: the type of activations. A test
// has an `attend` of its own.
Outcome check_gpu_attention(const TrainSpec& train, at::ScalarType compute, at::Device device,
                            AttendByOneKernel* attend = pinned_attention());

}  // namespace hpctl
