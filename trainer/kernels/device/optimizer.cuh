// SPDX-License-Identifier: Apache-2.0
// AdamW and the sum of squares, on a GPU.
//
// AdamW has the bits of optim/adamw.cc: each operation is rounded once, to nearest, in the same
// order; the intrinsics keep the compiler from joining two of them.
#pragma once

#include "trainer/kernels/device/numbers.cuh"

namespace hpctl::device {

template <typename M, int n>
inline void adamw_elements(const AdamW& p, long long i) {
  const Floats<n> param = load<n>(p.param + i);
  const Floats<n> m = load<n>(static_cast<const M*>(p.exp_avg) + i);
  const Floats<n> v = load<n>(static_cast<const M*>(p.exp_avg_sq) + i);
  const Floats<n> gradient = load<n>(p.gradient + i);
  Floats<n> new_param;
  Floats<n> new_m;
  Floats<n> new_v;
  for (int k = 0; k < n; ++k) {
    const float g = __fmul_rn(gradient.at[k], p.gradient_scale);
    const float next_m = __fadd_rn(__fmul_rn(p.beta1, m.at[k]), __fmul_rn(p.one_minus_beta1, g));
    const float next_v =
        __fadd_rn(__fmul_rn(p.beta2, v.at[k]), __fmul_rn(__fmul_rn(p.one_minus_beta2, g), g));
    const float denominator =
        __fadd_rn(__fmul_rn(__fsqrt_rn(next_v), p.inverse_root_correction2), p.eps);
    const float change = __fmul_rn(p.step_size, __fdiv_rn(next_m, denominator));
    new_param.at[k] = __fadd_rn(__fmul_rn(param.at[k], p.decay), -change);
    new_m.at[k] = next_m;
    new_v.at[k] = next_v;
  }
  store<n>(p.new_param + i, new_param);
  store<n>(static_cast<M*>(p.new_exp_avg) + i, new_m);
  store<n>(static_cast<M*>(p.new_exp_avg_sq) + i, new_v);
}

template <typename M>
inline void adamw(const AdamW& p) {
  for_own<kAdamElements>(p.count, p.packed, [&](auto number, long long i) {
    adamw_elements<M, decltype(number)::value>(p, i);
  });
}

// A thread takes the same elements in the same order, whether it may load them at once or not.
inline void squares(const Squares& p) {
  constexpr int n = kPack<float>;
  const long long begin = blockIdx.x * kSquaresOfBlock;
  const long long end = begin + kSquaresOfBlock < p.count ? begin + kSquaresOfBlock : p.count;
  double sum = 0;
  for (long long first = begin + threadIdx.x * n; first < end; first += kThreads * n) {
    if (p.packed && first + n <= end) {
      const Floats<n> values = load<n>(p.values + first);
      for (int k = 0; k < n; ++k) sum += static_cast<double>(values.at[k]) * values.at[k];
    } else {
      for (long long i = first; i < first + n && i < end; ++i) {
        sum += static_cast<double>(p.values[i]) * p.values[i];
      }
    }
  }
  sum = over_lanes<kThreads>(sum, Add{});
  if (threadIdx.x == 0) p.partials[blockIdx.x] = sum;
}

inline void sum_partials(const SumPartials& p) {
  double sum = 0;
  for (long long i = threadIdx.x; i < p.count; i += kThreads) sum += p.partials[i];
  sum = over_lanes<kThreads>(sum, Add{});
  if (threadIdx.x == 0) *p.total = sum;
}

}  // namespace hpctl::device
