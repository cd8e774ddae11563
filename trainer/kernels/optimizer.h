// SPDX-License-Identifier: Apache-2.0
// The work of an optimizer step on all of a rank's state, in one pass each: AdamW with the clip
// factor, and the sum of squares that the factor needs. All levels (level.h) have the same bits:
// each operation is rounded once, none is contracted, and sums have sixteen lanes at each of them.
//
// All of the state is read and written once in a step, more than caches hold. So results go to
// memory past the caches if the processor can do that: a store into a cache would first read the
// old value.
#pragma once

#include <cstdint>

#include "trainer/kernels/level.h"
#include "trainer/kernels/random_rounding.h"

namespace hpctl {

// Bound of the error of a step in fp32 beside the formula (trainer/optim/adamw.h) in exact numbers,
// if nothing overflows or vanishes. A rounding is 2^-24 of the rounded number. Factors are rounded
// once. There are 5 roundings in a first moment (its factor, two in the gradient, a product, the
// sum), and 8 in a second one, where the gradient counts twice. There are 17 in the parameter's
// change: the 5 of the first moment, half of the second's and 4 in the denominator (root, factor,
// product, sum), the quotient, two of the step size, the difference. One more covers the second
// order. Relative to the magnitudes that a result is the sum of: |beta1 m| + |(1 - beta1) g|; beta2
// v + (1 - beta2) g^2; |p| + step size * the first of them / denominator. Values in bf16 are
// rounded once more, up or down, by less than 2^-7 of themselves.
inline constexpr double kAdamErrorFp32 = 18 * 0x1p-24;

// Bound of the error of a sum of squares of `count` numbers in fp32, relative to the sum: squares
// are exact in fp64, no addend is negative, and each passes through the additions of its lane and
// of the lanes at most, 2^-53 each.
constexpr double sum_of_squares_error(int64_t count) {
  return static_cast<double>(count / 16 + 16) * 0x1p-53;
}

// M is the type of the stored moments, P the type of the parameter: T, or uint16_t for bf16
// (rounded stochastically on the way into memory; the parameter moves by the unrounded moments).
template <typename T, typename M = T, typename P = T>
struct AdamSource {
  const P* param;
  const M* exp_avg;
  const M* exp_avg_sq;
  const T* gradient;
};

template <typename T, typename M = T, typename P = T>
struct AdamTarget {
  P* param;
  M* exp_avg;
  M* exp_avg_sq;
  // Where Device::adamw() also writes a parameter of fp32 in bf16, rounded to nearest; null:
  // nowhere.
  uint16_t* rounded = nullptr;
};

// Factors of the formula in trainer/optim/adamw.h.
template <typename T>
struct AdamFactors {
  T beta1;
  T beta2;
  T one_minus_beta1;
  T one_minus_beta2;
  T eps;
  T decay;  // 1 - lr * weight_decay; 1 for what does not decay
  T step_size;
  T inverse_root_correction2;
  T gradient_scale;
};

template <typename T>
struct OptimizerKernels {
  // For elements [0, count). No source may overlap a target.
  void (*adamw)(const AdamFactors<T>& factors, int64_t count, const AdamSource<T>& from,
                const AdamTarget<T>& to);
  // With moments in bf16.
  void (*adamw_bf16)(const AdamFactors<T>& factors, const RandomBits& bits, int64_t count,
                     const AdamSource<T, uint16_t>& from, const AdamTarget<T, uint16_t>& to);
  // With moments and parameters in bf16.
  void (*adamw_all_bf16)(const AdamFactors<T>& factors, const RandomBits& bits, int64_t count,
                         const AdamSource<T, uint16_t, uint16_t>& from,
                         const AdamTarget<T, uint16_t, uint16_t>& to);
  // In fp64. Element i is added to lane i % 16, and the lanes in their order.
  double (*sum_of_squares)(const T* values, int64_t count);
};

// Of fp64 there is the baseline alone.
template <typename T>
const OptimizerKernels<T>& optimizer_kernels(KernelLevel level = kernel_level());

}  // namespace hpctl
