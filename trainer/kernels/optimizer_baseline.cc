// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/optimizer_levels.h"
#include "trainer/kernels/optimizer_loops.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace hpctl::kernels {

namespace {

// SSE2 or NEON.
struct Baseline {
  static constexpr int kBytes = 16;
#ifdef __SSE2__
  static void stream(void* to, const void* from) {
    _mm_stream_si128(static_cast<__m128i*>(to), _mm_loadu_si128(static_cast<const __m128i*>(from)));
  }
  static void settle() { _mm_sfence(); }
#else
  static void stream(void* to, const void* from) { __builtin_memcpy(to, from, kBytes); }
  static void settle() {}
#endif
};

}  // namespace

const OptimizerKernels<float> kOptimizerBaseline = OptimizerLoops<float, Baseline>::table();
const OptimizerKernels<double> kOptimizerBaselineDouble = OptimizerLoops<double, Baseline>::table();

}  // namespace hpctl::kernels
