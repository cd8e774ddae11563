// SPDX-License-Identifier: Apache-2.0
// Causal attention within documents, where groups of query heads may share a key head, with rotary
// positions where the architecture has them: pairs of dimensions (i, i + h / 2), as in Hugging Face
// checkpoints, turned by angles that begin with 0 at every document. With a sliding window a token
// attends to the last W tokens of its document, its own included.
// Shapes: B sequences, T tokens each, H = heads, K = kv_heads, G = H / K, h = head dimension.
//
// On a CPU the kernel of trainer/kernels/attention.h computes it. On a GPU
// workload.train.gpu.attention chooses. auto means LibTorch's own kernels in bf16 and fp16: the
// kernel for whole sequences, which knows no window, or if present the one for packed documents
// (packed_attention.h), with all documents and windows in one call. None of them stores scores.
// Other types use products of matrices.
#pragma once

#include <cstdint>
#include <optional>

#include "common/job/job_spec.h"
#include "trainer/arch/attention_backend.h"
#include "trainer/arch/blocked_attention.h"
#include "trainer/arch/documents.h"
#include "trainer/arch/packed_attention.h"
#include "trainer/arch/recomputed.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl {

// On a GPU, whichever way it goes: the largest error of the result or of a gradient beside exact
// attention of the same operands, relative to the largest number of that. In bf16 and fp16 turned
// queries and keys, weights and what the gradients come from are rounded on the way. A bound that
// the CPU keeps by the same products; tests/gpu/run.sh holds a card to it.
inline double gpu_attention_bound(at::ScalarType type) {
  if (type == at::kBFloat16) return 1.0 / 64;
  return type == at::kHalf ? 1.0 / 512 : 1e-5;
}

class CausalAttention {
 public:
  using By = AttentionBackend;

  // For sequences of `seq_len` tokens; `compute` as in make_model(), `asked` for a GPU. `by`: the
  // device's best choice, unless given; products work on each device. `packed`: the kernels of
  // kPacked, if not LibTorch's.
  CausalAttention(const ModelSpec& model, int64_t seq_len, at::ScalarType compute,
                  at::Device device = at::kCPU, GpuAttention asked = GpuAttention::kAuto,
                  std::optional<By> by = std::nullopt, const PackedKernels* packed = nullptr);

  // q: [B, T, H, h]; k, v: [B, T, K, h] -> [B, T, H * h]
  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const Documents& documents, Recomputed* recomputed = nullptr) const;

  By by() const { return by_; }

  // The device's best choice, with or without kernels for kPacked. An impossible request was
  // refused before (gpu_attention.h).
  static By choose(at::ScalarType compute, at::Device device, bool windowed, bool packed,
                   GpuAttention asked = GpuAttention::kAuto);

 private:
  void make_angles(const ModelSpec& model, int64_t seq_len, at::Device device);
  at::Tensor rotate(const at::Tensor& x, const Documents& documents) const;
  at::Tensor by_document(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const Documents& documents, Recomputed* recomputed) const;
  at::Tensor whole(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   Recomputed* recomputed) const;

  at::ScalarType compute_;
  at::ScalarType wide_;
  double scale_;
  int64_t window_;               // seq_len where there is none
  const PackedKernels* packed_;  // null: none
  By by_;
  RotaryAngles rotary_;  // undefined, [T, h / 2] for blocks, or [T, 1, h]
  at::Tensor mask_;      // [T, T], by products: 0 where attention is allowed, else -inf
};

}  // namespace hpctl
