// SPDX-License-Identifier: Apache-2.0
// The source of optimizer.h at one level. `Level` is a type of the unnamed namespace of the one
// source that uses it (level.h says why): kBytes, the size of a vector; stream(to, from), which
// stores one past the caches, `to` being aligned to its size; settle(), after which other stores
// come behind those.
//
// A chunk's results are computed into the first cache, by loops that are left to the vectoriser,
// and stored from there.
#pragma once

#include "trainer/kernels/bf16.h"
#include "trainer/kernels/optimizer.h"
#include "trainer/kernels/random_rounding.h"
#include "trainer/kernels/vectors.h"

namespace hpctl::kernels {

template <typename T, typename Level>
class OptimizerLoops {
 public:
  static constexpr OptimizerKernels<T> table() {
    return {adamw, adamw_rounded<T>, adamw_rounded<uint16_t>, squares};
  }

 private:
  static constexpr int64_t kChunk = 512;
  static constexpr int64_t kSumLanes = 16;

  static T widened(T x) { return x; }
  static T widened(uint16_t x) { return float_of_bf16(x); }
  static void put(T& to, T x, uint32_t) { to = x; }
  static void put(uint16_t& to, T x, uint32_t random) {
    to = bf16_at_random(static_cast<float>(x), random & 0xffffU);
  }

  static T root(T x) {
    if constexpr (sizeof(T) == 4) {
      return __builtin_sqrtf(x);
    } else {
      return __builtin_sqrt(x);
    }
  }

  static void adamw(const AdamFactors<T>& factors, int64_t count, const AdamSource<T>& from,
                    const AdamTarget<T>& to) {
    update_all<T, T>(factors, {}, count, from, to);
  }

  template <typename P>
  static void adamw_rounded(const AdamFactors<T>& factors, const RandomBits& bits, int64_t count,
                            const AdamSource<T, uint16_t, P>& from,
                            const AdamTarget<T, uint16_t, P>& to) {
    update_all<uint16_t, P>(factors, bits, count, from, to);
  }

  template <typename M, typename P>
  static void update_all(const AdamFactors<T>& factors, const RandomBits& bits, int64_t count,
                         const AdamSource<T, M, P>& from, const AdamTarget<T, M, P>& to) {
    // The elements before the first whole vector, or all of a short array.
    const int64_t ahead = count < 2 * kChunk ? count : unaligned(to.param);
    update<M, P>(factors, bits, ahead, from, to);
    if (ahead == count) return;
    alignas(Level::kBytes) P param[kChunk];
    alignas(Level::kBytes) M exp_avg[kChunk];
    alignas(Level::kBytes) M exp_avg_sq[kChunk];
    for (int64_t i = ahead; i < count; i += kChunk) {
      const int64_t part = count - i < kChunk ? count - i : kChunk;
      update<M, P>(factors, {bits.low, bits.high, bits.first + static_cast<uint32_t>(i)}, part,
                   {from.param + i, from.exp_avg + i, from.exp_avg_sq + i, from.gradient + i},
                   {param, exp_avg, exp_avg_sq});
      store(to.param + i, param, part);
      store(to.exp_avg + i, exp_avg, part);
      store(to.exp_avg_sq + i, exp_avg_sq, part);
    }
    Level::settle();
  }

  template <typename M, typename P>
  static void update(const AdamFactors<T>& factors, const RandomBits& random, int64_t count,
                     const AdamSource<T, M, P>& from, const AdamTarget<T, M, P>& to) {
    const AdamFactors<T> f = factors;
    const RandomBits bits = random;
    const P* __restrict p = from.param;
    const M* __restrict m = from.exp_avg;
    const M* __restrict v = from.exp_avg_sq;
    const T* __restrict gradient = from.gradient;
    P* __restrict new_p = to.param;
    M* __restrict new_m = to.exp_avg;
    M* __restrict new_v = to.exp_avg_sq;
    for (int64_t i = 0; i < count; ++i) {
      const T g = gradient[i] * f.gradient_scale;
      const T next_m = f.beta1 * widened(m[i]) + f.one_minus_beta1 * g;
      const T next_v = f.beta2 * widened(v[i]) + f.one_minus_beta2 * g * g;
      const T denominator = root(next_v) * f.inverse_root_correction2 + f.eps;
      // Dead code where all is kept in T.
      const uint32_t of_moments = moment_bits(bits, static_cast<uint32_t>(i));
      put(new_m[i], next_m, of_moments);
      put(new_v[i], next_v, of_moments >> 16);
      put(new_p[i], widened(p[i]) * f.decay - f.step_size * (next_m / denominator),
          param_bits(of_moments));
    }
  }

  // Elements in front of the first that is aligned to a vector.
  template <typename E>
  static int64_t unaligned(const E* at) {
    const auto past = reinterpret_cast<uint64_t>(at) % Level::kBytes;
    return static_cast<int64_t>((past == 0 ? 0 : Level::kBytes - past) / sizeof(E));
  }

  template <typename E>
  static void store(E* to, const E* from, int64_t count) {
    constexpr int64_t kLanes = Level::kBytes / sizeof(E);
    const int64_t first = unaligned(to);
    int64_t i = first < count ? first : count;
    __builtin_memcpy(to, from, static_cast<uint64_t>(i) * sizeof(E));
    for (; i + kLanes <= count; i += kLanes) Level::stream(to + i, from + i);
    __builtin_memcpy(to + i, from + i, static_cast<uint64_t>(count - i) * sizeof(E));
  }

  static double squares(const T* values, int64_t count) {
    using L = Lanes<double, Level>;
    using Narrow [[gnu::vector_size(Level::kBytes / sizeof(double) * sizeof(T))]] = T;
    constexpr int64_t kVectors = kSumLanes / L::kCount;
    typename L::Vector sums[kVectors] = {};
    int64_t i = 0;
    for (; i + kSumLanes <= count; i += kSumLanes) {
      for (int64_t k = 0; k < kVectors; ++k) {
        Narrow part;
        __builtin_memcpy(&part, values + i + k * L::kCount, sizeof part);
        const auto x = __builtin_convertvector(part, typename L::Vector);
        sums[k] += x * x;
      }
    }
    double lanes[kSumLanes];
    __builtin_memcpy(lanes, sums, sizeof lanes);
    for (int64_t lane = 0; i < count; ++i, ++lane) {
      const double x = values[i];
      lanes[lane] += x * x;
    }
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return sum;
  }
};

}  // namespace hpctl::kernels
