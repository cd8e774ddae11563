// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "trainer/kernels/optimizer_levels.h"
#include "trainer/kernels/optimizer_loops.h"

namespace hpctl::kernels {

namespace {

struct Avx2 {
  static constexpr int kBytes = 32;
  static void stream(void* to, const void* from) {
    _mm256_stream_si256(static_cast<__m256i*>(to),
                        _mm256_loadu_si256(static_cast<const __m256i*>(from)));
  }
  static void settle() { _mm_sfence(); }
};

}  // namespace

const OptimizerKernels<float> kOptimizerAvx2 = OptimizerLoops<float, Avx2>::table();

}  // namespace hpctl::kernels
