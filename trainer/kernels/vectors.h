// SPDX-License-Identifier: Apache-2.0
// Vectors of a level, by the compiler's own vector types: arithmetic between them, and between one
// and a scalar, is lane by lane. `Level` is a type of the unnamed namespace of the one source that
// uses it (level.h gives the reason). It has kBytes, the size of a vector, and, if the instruction
// set has them, widen() from 16 bits to 32 and narrow() back.
#pragma once

#include <cstdint>
#include <type_traits>

#include "trainer/kernels/bf16.h"

namespace hpctl::kernels {

template <typename T, typename Level>
struct Lanes {
  using Vector [[gnu::vector_size(Level::kBytes)]] = T;
  using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  using Words [[gnu::vector_size(Level::kBytes)]] = Word;
  using Halves [[gnu::vector_size(Level::kBytes / sizeof(T) * 2)]] = uint16_t;
  static constexpr int64_t kCount = Level::kBytes / sizeof(T);

  [[gnu::always_inline]] static Vector load(const T* from) {
    Vector v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
  }

  [[gnu::always_inline]] static void store(T* to, Vector v) { __builtin_memcpy(to, &v, sizeof v); }

  // Of bf16 in memory, and to it; as bf16.h does it for one value.
  [[gnu::always_inline]] static Vector load(const uint16_t* from) {
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    return (Vector)(widened(halves) << 16);
  }

  [[gnu::always_inline]] static void store(uint16_t* to, Vector v) {
    const Words quiet = Words{} + 0x7fc0U;
    const Words bits = (Words)v;
    const Words rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const Halves halves = narrowed(v == v ? rounded : quiet);
    __builtin_memcpy(to, &halves, sizeof halves);
  }

  [[gnu::always_inline]] static Words widened(Halves halves) {
    if constexpr (requires { Level::widen(halves); }) {
      return Level::widen(halves);
    } else {
      return __builtin_convertvector(halves, Words);
    }
  }

  [[gnu::always_inline]] static Halves narrowed(Words words) {
    if constexpr (requires { Level::narrow(words); }) {
      return Level::narrow(words);
    } else {
      return __builtin_convertvector(words, Halves);
    }
  }

  [[gnu::always_inline]] static T load_one(const T* from) { return *from; }
  [[gnu::always_inline]] static T load_one(const uint16_t* from) { return float_of_bf16(*from); }
  [[gnu::always_inline]] static void store_one(T* to, T value) { *to = value; }
  [[gnu::always_inline]] static void store_one(uint16_t* to, T value) {
    *to = bf16_of(static_cast<float>(value));
  }

  // `count` elements, of T or of bf16, and `rest` in the other lanes.
  template <typename S>
  [[gnu::always_inline]] static Vector load_part(const S* from, int64_t count, T rest) {
    if (count == kCount) return load(from);
    Vector v = all(rest);
    for (int64_t i = 0; i < count; ++i) v[i] = load_one(from + i);
    return v;
  }

  template <typename S>
  [[gnu::always_inline]] static void store_part(S* to, Vector v, int64_t count) {
    if (count == kCount) return store(to, v);
    for (int64_t i = 0; i < count; ++i) store_one(to + i, v[i]);
  }

  // The sum of the lanes, in their order.
  [[gnu::always_inline]] static T sum(Vector v) {
    T total = v[0];
    for (int64_t i = 1; i < kCount; ++i) total += v[i];
    return total;
  }

  [[gnu::always_inline]] static Vector all(T value) { return value - Vector{}; }

  // 0, 1, 2, ...
  [[gnu::always_inline]] static Vector numbers() {
    Vector v{};
    for (int64_t i = 0; i < kCount; ++i) v[i] = static_cast<T>(i);
    return v;
  }

  [[gnu::always_inline]] static Vector greater(Vector a, Vector b) { return a > b ? a : b; }
  [[gnu::always_inline]] static Vector lesser(Vector a, Vector b) { return a < b ? a : b; }

  // 2^x for x up to 127, with a relative error of at most 2^-22 in fp32; 0 for x below -126. In
  // fp32: 2^x = 2^n 2^f, n the nearest integer. The last bits of x plus 1.5 * 2^23 + 127 are the
  // exponent of 2^n; 2^f is a polynomial (minimax on [-1/2, 1/2], relative error 1.9e-9).
  [[gnu::always_inline]] static Vector exp2(Vector x) {
    if constexpr (sizeof(T) == 4) {
      constexpr T kShift = 0x1.8p23F + 127;
      const Vector shifted = x + kShift;
      const Vector f = x - (shifted - kShift);
      Vector p = 0.00015345812011544304F * f + 0.0013399931219193481F;
      p = p * f + 0.009618488957075231F;
      p = p * f + 0.055503287769653374F;
      p = p * f + 0.24022646890634652F;
      p = p * f + 0.6931472057372676F;
      p = p * f + 1.0F;
      const Vector power = (Vector)((Words)shifted << 23);
      return x < all(-126.0F) ? Vector{} : p * power;
    } else {
      for (int64_t i = 0; i < kCount; ++i) x[i] = __builtin_exp2(x[i]);
      return x;
    }
  }
};

}  // namespace hpctl::kernels
