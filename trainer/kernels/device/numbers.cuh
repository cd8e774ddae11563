// SPDX-License-Identifier: Apache-2.0
// Elements in memory and in registers, and sums over threads.
//
// Memory holds fp32, bf16 or fp16; all arithmetic is in fp32 (sums of squares in fp64), and what
// goes back is rounded once, to nearest even. Sums have one order, that of the code below, whatever
// the device: a thread's own elements ascending, then the threads of a warp in pairs, then warps
// ascending. No atomics. Which elements are a thread's own depends on their number and on whether
// they are packed (passes.cuh): all that LibTorch allocates is aligned, so of a tensor it is its
// shape that decides, in every run.
#pragma once

#include "trainer/kernels/device/passes.cuh"

namespace hpctl::device {

struct Bf16 {
  unsigned short bits;
};
struct Fp16 {
  unsigned short bits;
};

inline float widened(float x) { return x; }
inline float widened(Bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
inline float widened(Fp16 x) { return float_of_half(x.bits); }

inline void put(float& to, float x) { to = x; }
// As trainer/kernels/bf16_rounding.h.
inline void put(Bf16& to, float x) {
  const unsigned bits = __float_as_uint(x);
  const unsigned nearest = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  to.bits = static_cast<unsigned short>(nan ? 0x7fc0U : nearest);
}
inline void put(Fp16& to, float x) { to.bits = half_of_float(x); }

inline float infinity() { return __uint_as_float(0x7f800000U); }
inline float not_a_number() { return __uint_as_float(0x7fc00000U); }

// `N` elements that a thread moves at once.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};
template <int N>
struct Floats {
  float at[N];
};
template <typename T>
inline constexpr int kPack = kPackBytes / sizeof(T);

template <int N, typename T>
inline Floats<N> load(const T* from) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(from);
  Floats<N> values;
  for (int k = 0; k < N; ++k) values.at[k] = widened(pack.at[k]);
  return values;
}

template <typename T, int N>
inline void store_pack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

template <int N, typename T>
inline void store(T* to, const Floats<N>& values) {
  Pack<T, N> pack;
  for (int k = 0; k < N; ++k) put(pack.at[k], values.at[k]);
  store_pack(to, pack);
}

template <int N>
struct Number {
  static constexpr int value = N;
};

// work(Number<N>, i) for elements [i, i + N) of a row, those of thread `lane` of `lanes`.
template <typename T, int kLanes, typename Work>
inline void for_row(int lane, long long count, bool packed, const Work& work) {
  if (packed) {
    constexpr int n = kPack<T>;
    for (long long i = static_cast<long long>(lane) * n; i < count; i += kLanes * n) {
      work(Number<n>{}, i);
    }
  } else {
    for (long long i = lane; i < count; i += kLanes) work(Number<1>{}, i);
  }
}

// work(Number<N>, i) for the `n` elements that this thread has of all of the grid's, as far as
// there are some.
template <int n, typename Work>
inline void for_own(long long count, bool packed, const Work& work) {
  const long long thread = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  const long long first = thread * n;
  if (packed && first + n <= count) {
    work(Number<n>{}, first);
  } else {
    for (long long i = first; i < first + n && i < count; ++i) work(Number<1>{}, i);
  }
}

struct Add {
  template <typename S>
  S operator()(S a, S b) const {
    return a + b;
  }
};
struct Greater {
  float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <typename S, typename Operation>
inline S over_warp(S value, const Operation& operation) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffffU, value, distance));
  }
  return value;
}

// Of the values of kLanes neighbouring threads, a warp or the block; all of them have the result.
template <int kLanes, typename S, typename Operation>
inline S over_lanes(S value, const Operation& operation) {
  static_assert(kLanes == kWarp || kLanes == kThreads);
  S result = over_warp(value, operation);
  if constexpr (kLanes == kThreads) {
    __shared__ S warps[kThreads / kWarp];
    __syncthreads();  // what was there before has been read
    if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = result;
    __syncthreads();
    result = warps[0];
    for (int w = 1; w < kThreads / kWarp; ++w) result = operation(result, warps[w]);
  }
  return result;
}

}  // namespace hpctl::device
