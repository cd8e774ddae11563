// SPDX-License-Identifier: Apache-2.0
// Causal attention within all documents of a micro-batch by one call of a GPU's kernel, which gets
// their borders, as an operation with a gradient. Without documents every sequence is one. Autograd
// keeps the operands, the result and a number per query and head; scores are never stored.
//
// The kernel is LibTorch's flash attention. The GPUs, types and head dimensions that it takes
// differ between releases and builds, so it is tried once, by a call on a document of two tokens
// (docs/decisions/1404-gpu-hot-path.md). A test replaces it with another kernel.
#pragma once

#include <cstdint>
#include <tuple>

#include "common/job/job_spec.h"
#include "trainer/arch/blocked_attention.h"
#include "trainer/arch/documents.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl {

// As the functions of torch_compat.h. Each begins its work on the device and returns; what it
// cannot do it throws as c10::Error, at once.
struct PackedKernels {
  compat::PackedResult (*forward)(const compat::PackedAttention& of);
  std::tuple<at::Tensor, at::Tensor, at::Tensor> (*backward)(const at::Tensor& gradient,
                                                             const compat::PackedAttention& of,
                                                             const compat::PackedResult& result);
};

// LibTorch's where it has some that take heads as the model's, forward and backward, in this type
// on this device; else null, and the log says why where it is a GPU that refuses.
const PackedKernels* packed_kernels(const ModelSpec& model, at::ScalarType type, at::Device device);
// Returns whether these do.
bool takes(const PackedKernels& kernels, const ModelSpec& model, at::ScalarType type,
           at::Device device);

// q: [B, T, H, h]; k, v: [B, T, K, h], K divides H -> [B, T, H * h]; `documents` with its tensors
// where these are. Nothing here waits for the device. `kernels` outlives the graph.
at::Tensor packed_attention(const PackedKernels& kernels, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const Documents& documents,
                            const AttentionRule& rule);

}  // namespace hpctl
