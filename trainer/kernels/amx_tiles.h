// SPDX-License-Identifier: Apache-2.0
// Tiles of bf16 for the processor's matrix units (AMX): sixteen rows of 64 bytes each. `Level` is a
// type of the including source's unnamed namespace (level.h says why).
//
// An instruction adds a left tile times a right one to sixteen rows of sixteen sums in fp32. A left
// tile is [16 rows, 32 of depth]. Each 32 bits of a right tile are two numbers that are adjacent in
// depth: [16 pairs of depth, 16 columns, 2]. Read as numbers of 32 bits, either form of an operand
// is the transpose of the other, so one operand, lying in either direction, becomes a tile of
// either kind by loading sixteen rows and at most transposing them. "Lines" are rows of a left
// operand, columns of a right one.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace hpctl::kernels {

enum class Side { kLeft, kRight };

template <typename Level>
struct Tiles {
  static constexpr int64_t kLines = 16;
  static constexpr int64_t kDepth = 32;
  static constexpr int64_t kElements = kLines * kDepth;

  // All eight tiles whole, for this thread, from begin() to end(). Static, because of what lies in
  // a variable the compiler thinks that the instruction reads 8 bytes only.
  static void begin() {
    alignas(64) static constexpr uint8_t kConfig[64] = {
        1,  0,                                                  // palette, first row
        0,  0,  0,  0,  0,  0,  0,  0, 0, 0, 0, 0, 0, 0,        // reserved
        64, 0,  64, 0,  64, 0,  64, 0,                          // bytes of a row, of each tile
        64, 0,  64, 0,  64, 0,  64, 0,                          //
        0,  0,  0,  0,  0,  0,  0,  0, 0, 0, 0, 0, 0, 0, 0, 0,  // of tiles that there are not
        16, 16, 16, 16, 16, 16, 16, 16};                        // rows
    _tile_loadconfig(kConfig);
  }
  static void end() { _tile_release(); }

  // The compiler takes a load of a tile for an instruction that reads nothing, and would move
  // stores after it.
  [[gnu::always_inline]] static void publish() { asm volatile("" ::: "memory"); }

  // Of 32-bit numbers.
  [[gnu::always_inline]] static void transpose(__m512i (&r)[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
      r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
      r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
      r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
      r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    // r[4 * i + c] now has elements 4 * q + c of rows 4 * i to 4 * i + 3 in its quarter q.
    constexpr int kEven = 0x88;
    constexpr int kOdd = 0xdd;
    for (int c = 0; c < 4; ++c) {
      t[c] = _mm512_shuffle_i32x4(r[c], r[4 + c], kEven);
      t[4 + c] = _mm512_shuffle_i32x4(r[c], r[4 + c], kOdd);
      t[8 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], kEven);
      t[12 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], kOdd);
    }
    for (int c = 0; c < 4; ++c) {
      r[c] = _mm512_shuffle_i32x4(t[c], t[8 + c], kEven);
      r[4 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], kEven);
      r[8 + c] = _mm512_shuffle_i32x4(t[c], t[8 + c], kOdd);
      r[12 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], kOdd);
    }
  }

  // One tile of `lines` x `depth` numbers, at most 16 x 32, and zeros for the others. Number d of
  // line n is at data[n * stride + d], or where kAcross at data[d * stride + n].
  template <Side kSide, bool kAcross>
  static void pack(const uint16_t* data, int64_t stride, int64_t lines, int64_t depth,
                   uint16_t* to) {
    __m512i rows[16];
    if constexpr (kAcross) {
      load_pairs(data, stride, lines, depth, rows);
    } else {
      load_lines(data, stride, lines, depth, rows);
    }
    if constexpr (kAcross == (kSide == Side::kLeft)) transpose(rows);
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * kDepth, rows[i]);
  }

  // 16 numbers each, `low` first, rounded to nearest, ties to even.
  [[gnu::always_inline]] static __m512i narrow(__m512 low, __m512 high) {
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
  }

  static uint32_t first_bits(int64_t count) {
    return count >= 32 ? ~0U : (1U << static_cast<uint32_t>(count)) - 1;
  }

 private:
  [[gnu::always_inline]] static void load_lines(const uint16_t* data, int64_t stride, int64_t lines,
                                                int64_t depth, __m512i (&rows)[16]) {
    if (lines >= kLines && depth >= kDepth) {
      for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_si512(data + i * stride);
      return;
    }
    const __mmask32 mask = first_bits(depth);
    for (int i = 0; i < 16; ++i) {
      rows[i] = i < lines ? _mm512_maskz_loadu_epi16(mask, data + i * stride) : __m512i{};
    }
  }

  [[gnu::always_inline]] static void load_pairs(const uint16_t* data, int64_t stride, int64_t lines,
                                                int64_t depth, __m512i (&rows)[16]) {
    const __mmask16 mask = static_cast<__mmask16>(first_bits(lines < kLines ? lines : kLines));
    for (int i = 0; i < 16; ++i) {
      const uint16_t* from = data + 2 * i * stride;
      const __m256i even =
          2 * i < depth ? _mm256_maskz_loadu_epi16(mask, from) : _mm256_setzero_si256();
      const __m256i odd = 2 * i + 1 < depth ? _mm256_maskz_loadu_epi16(mask, from + stride)
                                            : _mm256_setzero_si256();
      rows[i] = _mm512_or_si512(_mm512_cvtepu16_epi32(even),
                                _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
    }
  }
};

}  // namespace hpctl::kernels
