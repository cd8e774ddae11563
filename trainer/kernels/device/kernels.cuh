// SPDX-License-Identifier: Apache-2.0
// Every kernel, by the name under which the host finds it: NAME_TYPE, and before the type "narrow"
// where a warp has a row or "wide" where a block has. The language comes first (language.cuh).
#pragma once

#include "trainer/kernels/device/loss.cuh"
#include "trainer/kernels/device/optimizer.cuh"
#include "trainer/kernels/device/rows.cuh"

namespace hpctl::device {

#define HP_KERNELS(name, Pass)              \
  HP_KERNEL(name##_fp32, Pass, name<float>) \
  HP_KERNEL(name##_bf16, Pass, name<Bf16>)  \
  HP_KERNEL(name##_fp16, Pass, name<Fp16>)

#define HP_ROW_KERNELS(name, Pass)                         \
  HP_KERNEL(name##_narrow_fp32, Pass, name<float, kWarp>)  \
  HP_KERNEL(name##_narrow_bf16, Pass, name<Bf16, kWarp>)   \
  HP_KERNEL(name##_narrow_fp16, Pass, name<Fp16, kWarp>)   \
  HP_KERNEL(name##_wide_fp32, Pass, name<float, kThreads>) \
  HP_KERNEL(name##_wide_bf16, Pass, name<Bf16, kThreads>)  \
  HP_KERNEL(name##_wide_fp16, Pass, name<Fp16, kThreads>)

HP_ROW_KERNELS(rms_norm, RmsNorm)
HP_ROW_KERNELS(rms_norm_backward, RmsNormBackward)
HP_KERNELS(sum_columns, SumColumns)
HP_KERNELS(swiglu, Swiglu)
HP_KERNELS(swiglu_backward, SwigluBackward)
HP_KERNELS(rotary, Rotary)
HP_KERNELS(log_sums, LogSums)
HP_KERNELS(losses, Losses)
HP_KERNELS(cross_entropy_backward, CrossEntropyBackward)
HP_KERNEL(adamw_fp32, AdamW, adamw<float>)
HP_KERNEL(adamw_bf16, AdamW, adamw<Bf16>)
HP_KERNEL(squares_fp32, Squares, squares)
HP_KERNEL(sum_partials_fp32, SumPartials, sum_partials)

#undef HP_KERNELS
#undef HP_ROW_KERNELS

}  // namespace hpctl::device
