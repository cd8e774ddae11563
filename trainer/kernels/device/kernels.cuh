// SPDX-License-Identifier: Apache-2.0
// Every kernel, by the name under which the host finds it: NAME_TYPE, and before the type "narrow"
// where a warp has a row or "wide" where a block has. The language comes first (language.cuh). A
// program has the kernels of the types that are defined: HP_FP32, HP_BF16, HP_FP16.
#pragma once

#include "trainer/kernels/device/loss.cuh"
#include "trainer/kernels/device/optimizer.cuh"
#include "trainer/kernels/device/rowwise.cuh"

namespace hpctl::device {

#define HP_KERNELS_OF(type, T)                                                              \
  HP_KERNEL(rms_norm_narrow_##type, RmsNorm, rms_norm<T, kWarp>)                            \
  HP_KERNEL(rms_norm_wide_##type, RmsNorm, rms_norm<T, kThreads>)                           \
  HP_KERNEL(rms_norm_backward_narrow_##type, RmsNormBackward, rms_norm_backward<T, kWarp>)  \
  HP_KERNEL(rms_norm_backward_wide_##type, RmsNormBackward, rms_norm_backward<T, kThreads>) \
  HP_KERNEL(sum_columns_##type, SumColumns, sum_columns<T>)                                 \
  HP_KERNEL(swiglu_##type, Swiglu, swiglu<T>)                                               \
  HP_KERNEL(swiglu_backward_##type, SwigluBackward, swiglu_backward<T>)                     \
  HP_KERNEL(rotary_##type, Rotary, rotary<T>)                                               \
  HP_KERNEL(log_sums_##type, LogSums, log_sums<T>)                                          \
  HP_KERNEL(losses_##type, Losses, losses<T>)                                               \
  HP_KERNEL(cross_entropy_backward_##type, CrossEntropyBackward, cross_entropy_backward<T>)

#ifdef HP_FP32
HP_KERNELS_OF(fp32, float)
HP_KERNEL(adamw_fp32, AdamW, adamw<float, float>)
HP_KERNEL(squares_fp32, Squares, squares)
HP_KERNEL(sum_partials_fp32, SumPartials, sum_partials)
#endif
#ifdef HP_BF16
HP_KERNELS_OF(bf16, Bf16)
HP_KERNEL(adamw_bf16, AdamW, adamw<float, Bf16>)
HP_KERNEL(adamw_all_bf16, AdamW, adamw<Bf16, Bf16>)
#endif
#ifdef HP_FP16
HP_KERNELS_OF(fp16, Fp16)
#endif

#undef HP_KERNELS_OF

}  // namespace hpctl::device
