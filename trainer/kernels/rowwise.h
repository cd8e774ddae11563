// SPDX-License-Identifier: Apache-2.0
// The operations between the products of a layer, each in one pass over its operands, forward and
// backward, for the CPU, in fp32 and fp64: RMSNorm, SwiGLU, and the cross entropy of logits. A row
// depends on itself alone, so rows may be divided among threads in any way; only the gradient of a
// norm's weight is a sum over rows, in their order. Between levels (level.h) bits differ.
//
// T is the type of computation, S the type of rows in memory: T, or uint16_t for bf16. bf16 is
// widened as it is read, and rounded once as it is written (to nearest, ties to even): the bits are
// the same as with fp32's kernel on widened rows.
//
// Exponentials in fp32 have a relative error of at most 2^-22. No two operands overlap unless
// noted. Memory for a gradient need not be initialised. NaN stays NaN.
#pragma once

#include <cstdint>

#include "trainer/kernels/level.h"

namespace hpctl {

// Bounds of errors: the largest difference of a result from its definition in fp64, or of a
// gradient from finite differences of that, relative to the largest number of its kind. That in
// fp64 is what such differences are good for.
inline constexpr double kRowErrorFp32 = 2e-6;
inline constexpr double kRowErrorFp64 = 1e-8;
// Bounds beside fp32 on the same operands, relative to the largest number of its kind, for operands
// of the size of a normal distribution's: a result is rounded once. A gradient comes from the
// gradient of a rounded result, and is rounded. A rounding is 2^-8 in bf16, 2^-11 in fp16.
inline constexpr double kRowErrorBf16 = 2 * 0x1p-8;
inline constexpr double kRowErrorFp16 = 2 * 0x1p-11;

// x, y and their gradients: [rows, dim].
template <typename T, typename S = T>
struct RmsNormForward {
  int64_t dim;
  double eps;
  const S* x;
  const T* weight;  // [dim]
  S* y;             // x * inverse_rms * weight
  T* inverse_rms;   // [rows]: 1 / sqrt(mean(x^2) + eps)
  // Added to x first, or null. The pass then works on `sum`, as it is in memory.
  const S* addend = nullptr;
  S* sum = nullptr;
};

template <typename T, typename S = T>
struct RmsNormBackward {
  int64_t dim;
  const S* x;
  const T* weight;
  const T* inverse_rms;
  const S* y_gradient;
  S* x_gradient;
  T* weight_gradient;  // [dim], increased
  // Another gradient of x, added to what x_gradient would be in memory; or null.
  const S* other_gradient = nullptr;
};

// gate, up and their gradients: as many elements as y.
template <typename T, typename S = T>
struct SwigluForward {
  const S* gate;
  const S* up;
  S* y;  // gate / (1 + exp(-gate)) * up
};

template <typename T, typename S = T>
struct SwigluBackward {
  const S* gate;
  const S* up;
  const S* y_gradient;
  S* gate_gradient;
  S* up_gradient;
};

// For logits [rows, vocab].
template <typename T, typename S = T>
struct LogSums {
  int64_t vocab;
  const S* logits;
  T* log_sums;  // [rows]: log(sum(exp(logits)))
};

// The gradient of weight * (log_sum - logits[target]) + slope * log_sum: the row's softmax times
// (weight + slope), less `weight` at the target.
template <typename T, typename S = T>
struct CrossEntropyBackward {
  int64_t vocab;
  const S* logits;
  const T* log_sums;
  const int64_t* targets;  // [rows]; below 0: the row is not counted
  T weight;
  const T* slopes;     // [rows]
  S* logits_gradient;  // may be `logits`
};

// Each over `begin` to `end` of the rows, or of the elements.
template <typename T, typename S = T>
struct RowKernels {
  void (*rms_norm)(const RmsNormForward<T, S>& pass, int64_t begin, int64_t end);
  void (*rms_norm_backward)(const RmsNormBackward<T, S>& pass, int64_t begin, int64_t end);
  void (*swiglu)(const SwigluForward<T, S>& pass, int64_t begin, int64_t end);
  void (*swiglu_backward)(const SwigluBackward<T, S>& pass, int64_t begin, int64_t end);
  void (*log_sums)(const LogSums<T, S>& pass, int64_t begin, int64_t end);
  void (*cross_entropy_backward)(const CrossEntropyBackward<T, S>& pass, int64_t begin,
                                 int64_t end);
};

// fp64 has the baseline alone.
template <typename T, typename S = T>
const RowKernels<T, S>& row_kernels(KernelLevel level = kernel_level());
template <>
const RowKernels<float>& row_kernels<float>(KernelLevel level);
template <>
const RowKernels<float, uint16_t>& row_kernels<float, uint16_t>(KernelLevel level);
template <>
const RowKernels<double>& row_kernels<double>(KernelLevel level);

}  // namespace hpctl
