// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "trainer/kernels/rowwise_levels.h"
#include "trainer/kernels/rowwise_loops.h"

namespace hpctl::kernels {

namespace {

struct Avx512 {
  static constexpr int kBytes = 64;
  // One instruction each, where GCC 12 by itself takes several.
  using Halves [[gnu::vector_size(32)]] = uint16_t;
  using Words [[gnu::vector_size(64)]] = uint32_t;
  static Words widen(Halves halves) {
    return (Words)_mm512_maskz_cvtepu16_epi32(kAll, (__m256i)halves);
  }
  static Halves narrow(Words words) {
    return (Halves)_mm512_maskz_cvtepi32_epi16(kAll, (__m512i)words);
  }

 private:
  static constexpr __mmask16 kAll = 0xffff;
};

}  // namespace

const RowKernels<float> kRowsAvx512 = RowLoops<float, float, Avx512>::table();
const RowKernels<float, uint16_t> kBf16RowsAvx512 = RowLoops<float, uint16_t, Avx512>::table();

}  // namespace hpctl::kernels
