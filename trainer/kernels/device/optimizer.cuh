// SPDX-License-Identifier: Apache-2.0
// AdamW and the sum of squares, on a GPU.
//
// AdamW has the bits of optim/adamw.cc: each operation is rounded once, to nearest, in the same
// order; the intrinsics keep the compiler from joining two of them. So have its random bits, by
// which bf16 is rounded stochastically.
#pragma once

#include "trainer/kernels/device/numbers.cuh"

namespace hpctl::device {

// As random_rounding.h, here and below.
inline unsigned mix32(unsigned x, unsigned extra) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= (x >> 15) ^ extra;
  x *= 0x846ca68bU;
  return x ^ (x >> 16);
}

inline void put_at_random(float& to, float x, unsigned) { to = x; }
inline void put_at_random(Bf16& to, float x, unsigned random) {
  const unsigned bits = __float_as_uint(x);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  to.bits = static_cast<unsigned short>(nan ? 0x7fc0U : (bits + (random & 0xffffU)) >> 16);
}

template <typename P, typename M, int n>
inline void adamw_elements(const AdamW& p, long long i) {
  const Floats<n> param = load<n>(static_cast<const P*>(p.param) + i);
  const Floats<n> m = load<n>(static_cast<const M*>(p.exp_avg) + i);
  const Floats<n> v = load<n>(static_cast<const M*>(p.exp_avg_sq) + i);
  const Floats<n> gradient = load<n>(p.gradient + i);
  Pack<P, n> new_param;
  Pack<M, n> new_m;
  Pack<M, n> new_v;
  Pack<Bf16, n> rounded;
  for (int k = 0; k < n; ++k) {
    const float g = __fmul_rn(gradient.at[k], p.gradient_scale);
    const float next_m = __fadd_rn(__fmul_rn(p.beta1, m.at[k]), __fmul_rn(p.one_minus_beta1, g));
    const float next_v =
        __fadd_rn(__fmul_rn(p.beta2, v.at[k]), __fmul_rn(__fmul_rn(p.one_minus_beta2, g), g));
    const float denominator =
        __fadd_rn(__fmul_rn(__fsqrt_rn(next_v), p.inverse_root_correction2), p.eps);
    const float change = __fmul_rn(p.step_size, __fdiv_rn(next_m, denominator));
    const unsigned place = p.first + static_cast<unsigned>(i + k);
    const unsigned of_moments = mix32(place ^ p.bits_low, p.bits_high);
    put_at_random(new_m.at[k], next_m, of_moments);
    put_at_random(new_v.at[k], next_v, of_moments >> 16);
    const float next_param = __fadd_rn(__fmul_rn(param.at[k], p.decay), -change);
    put_at_random(new_param.at[k], next_param, mix32(of_moments, 0x9e3779b9U));
    put(rounded.at[k], next_param);
  }
  store_pack(static_cast<P*>(p.new_param) + i, new_param);
  store_pack(static_cast<M*>(p.new_exp_avg) + i, new_m);
  store_pack(static_cast<M*>(p.new_exp_avg_sq) + i, new_v);
  if (p.rounded != nullptr) store_pack(static_cast<Bf16*>(p.rounded) + i, rounded);
}

template <typename P, typename M>
inline void adamw(const AdamW& p) {
  for_own<kAdamElements>(p.count, p.packed, [&](auto number, long long i) {
    adamw_elements<P, M, decltype(number)::value>(p, i);
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
