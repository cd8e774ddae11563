// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/rowwise_levels.h"
#include "trainer/kernels/rowwise_loops.h"

namespace hpctl::kernels {

namespace {

// SSE2 or NEON.
struct Baseline {
  static constexpr int kBytes = 16;
  // GCC 12 by itself goes lane by lane. The lower half of a word comes first, as everywhere here.
  using Halves [[gnu::vector_size(8)]] = uint16_t;
  using AllHalves [[gnu::vector_size(16)]] = uint16_t;
  using Words [[gnu::vector_size(16)]] = uint32_t;
  static Words widen(Halves halves) {
    return (Words)__builtin_shufflevector(halves, Halves{}, 0, 4, 1, 5, 2, 6, 3, 7);
  }
  static Halves narrow(Words words) {
    return __builtin_shufflevector((AllHalves)words, (AllHalves)words, 0, 2, 4, 6);
  }
};

}  // namespace

const RowKernels<float> kRowsBaseline = RowLoops<float, float, Baseline>::table();
const RowKernels<float, uint16_t> kBf16RowsBaseline = RowLoops<float, uint16_t, Baseline>::table();
const RowKernels<double> kRowsBaselineDouble = RowLoops<double, double, Baseline>::table();

}  // namespace hpctl::kernels
