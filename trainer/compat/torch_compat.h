// SPDX-License-Identifier: Apache-2.0
// LibTorch as the trainer uses it, 1.13 to 2.x. Every difference between releases is in this file;
// it is also the precompiled header of what links LibTorch. Never torch/torch.h: it costs three
// times the compile time and drags in a module system that we do not use.
#pragma once
// A guard besides, as this header is precompiled: ccache gives a precompiled header to a checkout
// in which the file differs in its comments alone, and #pragma once then takes it for another file.
#ifndef HPCTL_TRAINER_COMPAT_TORCH_COMPAT_H_
#define HPCTL_TRAINER_COMPAT_TORCH_COMPAT_H_

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/api/include/torch/version.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#define HP_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||     \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace hpctl::compat {

inline std::string torch_version() {
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + "." +
         std::to_string(TORCH_VERSION_PATCH);
}

// A stream of our own as LibTorch's: an id that is a CUDA stream's address stands for that stream
// (since 1.11, c10/cuda/CUDAStream.cpp), so that no header of CUDA's is needed.
inline c10::Stream stream_over(void* cuda_stream, at::Device device) {
  return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<int64_t>(cuda_stream));
}

// The CUDA stream that this thread's operations on the device are given to, null for the default
// one and without a GPU. Ids of LibTorch's pools are no multiples of 8.
inline void* current_stream(at::Device device) {
  if (!device.is_cuda()) return nullptr;
  const int64_t id = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device).id();
  TORCH_CHECK(id % 8 == 0, "a stream of LibTorch's own has no address that we know");
  return reinterpret_cast<void*>(id);
}

// A flat tensor of `count` elements over memory that it does not own. `device` as LibTorch writes
// it; naming it spares LibTorch asking the driver.
inline at::Tensor tensor_over(void* memory, int64_t count, at::ScalarType type,
                              const std::string& device) {
  const at::Device where(device);
  return at::for_blob(memory, {count})
      .deleter([](void*) {})
      .options(at::TensorOptions(type).device(where))
      .target_device(where)
      .make_tensor();
}

// Host memory of a batch to a device, by way of page-locked memory, so that the host need not wait.
inline at::Tensor to_device(const at::Tensor& tensor, const std::string& device) {
  const at::Device where(device);
  if (where == tensor.device()) return tensor;
  return tensor.pin_memory().to(where, /*non_blocking=*/true);
}

// All of the memory under `tensor`, whatever part of it the tensor shows.
inline std::pair<void*, size_t> storage_memory(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  return {storage->data_ptr().get(), storage->nbytes()};
}

// Points the storage under `tensor`, and so all its views, at other memory without telling
// autograd. `memory` is not owned; null with 0 bytes takes the memory away, and a use of the
// tensor then faults at address 0 instead of reading stale values.
inline void set_storage_memory(const at::Tensor& tensor, void* memory, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(
      memory, nullptr, [](void*) {}, tensor.device()));
  storage->set_nbytes(bytes);
}

// Whether the same input must give the same bits on a GPU. (Products of fp32 are in fp32 by
// default.) cuBLAS needs CUBLAS_WORKSPACE_CONFIG for that (pin_environment.h). Not "warn only":
// flash attention would take that as permission to add in any order.
inline void compute_deterministically(bool deterministic) {
  at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
#if HP_TORCH_AT_LEAST(2, 2)
  // Else every new tensor is filled first.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
#endif
}

// Partial sums of a product in bf16 or fp16 on a GPU stay in fp32 from here on. By default cuBLAS
// may round them to the type of the operands.
inline void keep_partial_sums_wide() {
  at::globalContext().setAllowFP16ReductionCuBLAS(false);
#if HP_TORCH_AT_LEAST(2, 0)
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
#endif
}

// Causal attention in one kernel that never has all the weights in memory. q: [B, T, H, h]; k, v:
// [B, T, K, h], K divides H -> [B, T, H, h].
#if HP_TORCH_AT_LEAST(2, 4)
inline constexpr bool kHasFusedAttention = true;
inline at::Tensor fused_causal_attention(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, double scale) {
  const int64_t group = q.size(2) / k.size(2);
  const at::Tensor rows = q.transpose(1, 2);
#if HP_TORCH_AT_LEAST(2, 5)
  return at::scaled_dot_product_attention(rows, k.transpose(1, 2), v.transpose(1, 2), {}, 0.0,
                                          /*is_causal=*/true, scale, /*enable_gqa=*/group > 1)
      .transpose(1, 2);
#else
  const auto repeated = [&](const at::Tensor& x) {
    return (group > 1 ? x.repeat_interleave(group, 2) : x).transpose(1, 2);
  };
  return at::scaled_dot_product_attention(rows, repeated(k), repeated(v), {}, 0.0,
                                          /*is_causal=*/true, scale)
      .transpose(1, 2);
#endif
}
#else
inline constexpr bool kHasFusedAttention = false;
inline at::Tensor fused_causal_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                         double) {
  TORCH_CHECK(false, "LibTorch ", torch_version(), " has no fused attention that we use");
}
#endif

// That kernel on a GPU shall be FlashAttention's or cuDNN's, from here on and in the whole process:
// where it takes an operand not, fused_causal_attention() throws. Until then LibTorch chooses.
enum class FusedKernel { kFlash, kCudnn };
#if HP_TORCH_AT_LEAST(2, 5)
inline constexpr bool kHasPinnedAttention = true;
inline void pin_fused_attention(FusedKernel kernel) {
  at::Context& context = at::globalContext();
  context.setSDPUseFlash(kernel == FusedKernel::kFlash);
  context.setSDPUseCuDNN(kernel == FusedKernel::kCudnn);
  context.setSDPUseMemEfficient(false);
  context.setSDPUseMath(false);
}
#else
inline constexpr bool kHasPinnedAttention = false;
inline void pin_fused_attention(FusedKernel) {}  // who asks for it is refused (gpu_attention.h)
#endif

// Causal attention within packed documents, by one kernel (flash attention), and its gradients of
// q, k and v.
struct PackedAttention {
  at::Tensor q;        // [N, H, h], as k and v with heads that are dense
  at::Tensor k;        // [N, K, h], K divides H
  at::Tensor v;        // as k
  at::Tensor borders;  // [documents + 1] int32, there: the first token of each, and N
  int64_t longest;     // tokens of a document, at most
  double scale;        // of the scores
  int64_t window;      // keys that a query sees at most, its own included
};
struct PackedResult {
  at::Tensor out;       // as q
  at::Tensor log_sums;  // per token and head, in LibTorch's order
  at::Tensor seed;      // of dropout, of which there is none
  at::Tensor offset;
};
#if HP_TORCH_AT_LEAST(2, 5)
inline constexpr bool kHasPackedAttention = true;
// Keys to the left of a query's own that it sees; none: all.
inline std::optional<int64_t> keys_before(const PackedAttention& of) {
  return of.window < of.longest ? std::optional(of.window - 1) : std::nullopt;
}
// No keys to the right, which LibTorch must be given with a window.
inline std::optional<int64_t> keys_behind(const PackedAttention& of) {
  return of.window < of.longest ? std::optional<int64_t>(0) : std::nullopt;
}
// The maximum for LibTorch: for documents of one token each it would take its kernel for generating
// text, which has other sums and no gradient.
inline int64_t most_tokens(const PackedAttention& of) { return std::max<int64_t>(2, of.longest); }
inline PackedResult packed_attention(const PackedAttention& of) {
  auto [out, log_sums, seed, offset, unused] = at::_flash_attention_forward(
      of.q, of.k, of.v, of.borders, of.borders, most_tokens(of), most_tokens(of),
      /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false, of.scale, keys_before(of),
      keys_behind(of));
  return {out, log_sums, seed, offset};
}
inline std::tuple<at::Tensor, at::Tensor, at::Tensor> packed_attention_backward(
    const at::Tensor& gradient, const PackedAttention& of, const PackedResult& result) {
  return at::_flash_attention_backward(gradient, of.q, of.k, of.v, result.out, result.log_sums,
                                       of.borders, of.borders, most_tokens(of), most_tokens(of),
                                       /*dropout_p=*/0.0, /*is_causal=*/true, result.seed,
                                       result.offset, of.scale, keys_before(of), keys_behind(of));
}
#else
inline constexpr bool kHasPackedAttention = false;
inline PackedResult packed_attention(const PackedAttention&) {
  TORCH_CHECK(false, "LibTorch ", torch_version(), " has no packed attention that we use");
}
inline std::tuple<at::Tensor, at::Tensor, at::Tensor> packed_attention_backward(
    const at::Tensor&, const PackedAttention&, const PackedResult&) {
  TORCH_CHECK(false, "LibTorch ", torch_version(), " has no packed attention that we use");
}
#endif

// One step of AdamW in place in one kernel, all tensors fp32 and on a GPU. `number` and
// `inverse_scale` are fp32 scalars on that GPU: the step's number from 1, and what the gradient,
// which is overwritten, is divided by.
#if HP_TORCH_AT_LEAST(2, 1)
inline constexpr bool kHasFusedAdamW = true;
inline void fused_adamw(const at::Tensor& param, const at::Tensor& gradient,
                        const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                        const at::Tensor& number, const at::Tensor& inverse_scale, double lr,
                        double beta1, double beta2, double weight_decay, double eps) {
  at::_fused_adamw_({param}, {gradient}, {exp_avg}, {exp_avg_sq}, {}, {number}, lr, beta1, beta2,
                    weight_decay, eps, /*amsgrad=*/false, /*maximize=*/false, inverse_scale);
}
#else
inline constexpr bool kHasFusedAdamW = false;
inline void fused_adamw(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                        const at::Tensor&, const at::Tensor&, double, double, double, double,
                        double) {
  TORCH_CHECK(false, "LibTorch ", torch_version(), " has no fused AdamW");
}
#endif

// sum += a b, or where it is the `first`, sum = a b, whatever was there. Matrices: the sum in fp32,
// the operands in bf16 or fp16, on a GPU. What is first is written by one kernel. Added it is by
// one kernel, which takes a sum in fp32 in some releases alone; the second function adds by two
// passes.
#if HP_TORCH_AT_LEAST(2, 8)
inline constexpr bool kHasWideProducts = true;
inline void add_wide_product(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                             bool first) {
  if (first) {
    at::mm_out(sum, a, b, at::kFloat);
  } else {
    at::addmm_out(sum, sum, a, b, at::kFloat, /*beta=*/1, /*alpha=*/1);
  }
}
inline void make_and_add_wide_product(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                                      bool first) {
  if (first) {
    at::mm_out(sum, a, b, at::kFloat);
  } else {
    sum.add_(at::mm(a, b, at::kFloat));
  }
}
#else
inline constexpr bool kHasWideProducts = false;
inline void add_wide_product(at::Tensor&, const at::Tensor&, const at::Tensor&, bool) {
  TORCH_CHECK(false, "LibTorch ", torch_version(), " has no products of bf16 in fp32");
}
inline void make_and_add_wide_product(at::Tensor&, const at::Tensor&, const at::Tensor&, bool) {
  TORCH_CHECK(false, "LibTorch ", torch_version(), " has no products of bf16 in fp32");
}
#endif

// Moves the memory of one storage under another one, also without autograd's knowledge. Both keep
// their owners.
inline void move_storage_memory(const at::Tensor& from, const at::Tensor& to) {
  c10::StorageImpl* source = from.storage().unsafeGetStorageImpl();
  c10::StorageImpl* target = to.storage().unsafeGetStorageImpl();
  target->set_nbytes(source->nbytes());
  target->set_data_ptr_noswap(source->set_data_ptr(at::DataPtr(nullptr, source->device())));
  source->set_nbytes(0);
}

// Runs the graph behind `output` backwards from `gradient` (undefined for a scalar).
inline void backward(const at::Tensor& output, const at::Tensor& gradient) {
  torch::autograd::backward({output}, {gradient});
}

}  // namespace hpctl::compat

#endif  // HPCTL_TRAINER_COMPAT_TORCH_COMPAT_H_
