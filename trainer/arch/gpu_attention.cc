// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/gpu_attention.h"

#include <string>

#include "trainer/arch/packed_attention.h"

namespace hpctl {

namespace {

Error refused(const TrainSpec& train, const std::string& why) {
  return {ErrorCode::kInvalidArgument,
          std::string("workload.train.gpu.attention: ") + to_word(train.gpu.attention) +
              " is not to be had: " + why + "; leave it auto, or say products"};
}

// For one of the job's sequences. One key head with its queries represents all.
void attend_once(const TrainSpec& train, at::ScalarType compute, at::Device device,
                 AttendByOneKernel* attend) {
  const ModelSpec& model = train.model;
  const auto zeros = [&](int64_t heads) {
    return at::zeros({1, train.data.seq_len, heads, model.head_size()},
                     at::TensorOptions(compute).device(device))
        .set_requires_grad(true);
  };
  const at::Tensor out = attend(zeros(model.heads / model.kv_heads), zeros(1), zeros(1), 1.0);
  compat::backward(out, at::zeros_like(out));
}

// FlashAttention takes heads of 256 at most. LibTorch's kernel for wider ones may have no backward
// pass in a fixed order: it throws then.
bool has_wide_heads_in_order(const TrainSpec& train) {
  constexpr int64_t kWidestOfFlash = 256;
  return train.gpu.attention == GpuAttention::kAuto && train.gpu.deterministic &&
         train.precision != Precision::kFp32 && train.model.head_size() > kWidestOfFlash;
}

Outcome check_wide_heads(const TrainSpec& train, at::ScalarType compute, at::Device device,
                         AttendByOneKernel* attend) {
  if (attend == nullptr) return Ok{};  // products, or a kernel that is not asked
  try {
    attend_once(train, compute, device, attend);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    return Error{ErrorCode::kInvalidArgument,
                 "workload.train.gpu.deterministic: LibTorch " + compat::torch_version() +
                     " has no attention in a fixed order for heads of " +
                     std::to_string(train.model.head_size()) + " on " + device.str() + ": " +
                     error.what_without_backtrace() +
                     "; say gpu.attention: products, or gpu.deterministic: false"};
  }
  return Ok{};
}

}  // namespace

AttendByOneKernel* pinned_attention() {
  return compat::kHasPinnedAttention ? &compat::fused_causal_attention : nullptr;
}

Outcome check_gpu_attention(const TrainSpec& train, at::ScalarType compute, at::Device device,
                            AttendByOneKernel* attend) {
  if (has_wide_heads_in_order(train)) return check_wide_heads(train, compute, device, attend);
  const GpuAttention asked = train.gpu.attention;
  if (asked == GpuAttention::kAuto || asked == GpuAttention::kProducts) return Ok{};
  const std::string libtorch = "LibTorch " + compat::torch_version();
  if (attend == nullptr) {
    return refused(train, libtorch + " cannot choose one kernel; LibTorch 2.5 and newer can");
  }
  const std::string heads = " heads of " + std::to_string(train.model.head_size()) + " in " +
                            to_word(train.precision) + " on " + device.str();
  try {
    attend_once(train, compute, device, attend);
  } catch (const c10::OutOfMemoryError&) {
    throw;  // says nothing of the kernel
  } catch (const c10::Error& error) {
    return refused(train,
                   libtorch + " does not take" + heads + ": " + error.what_without_backtrace());
  }
  const bool windowed = train.model.is_windowed(train.data.seq_len);
  if (windowed && packed_kernels(train.model, compute, device) == nullptr) {
    return refused(train, libtorch + " has no window for" + heads);
  }
  return Ok{};
}

}  // namespace hpctl
