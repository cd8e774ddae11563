// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "trainer/kernels/optimizer_levels.h"
#include "trainer/kernels/optimizer_loops.h"

namespace hpctl::kernels {

namespace {

struct Avx512 {
  static constexpr int kBytes = 64;
  static void stream(void* to, const void* from) {
    _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
  static void settle() { _mm_sfence(); }
};

}  // namespace

const OptimizerKernels<float> kOptimizerAvx512 = OptimizerLoops<float, Avx512>::table();

}  // namespace hpctl::kernels
