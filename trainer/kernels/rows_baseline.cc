// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/rows_levels.h"
#include "trainer/kernels/rows_loops.h"

namespace hpctl::kernels {

namespace {

// SSE2 or NEON.
struct Baseline {
  static constexpr int kBytes = 16;
};

}  // namespace

const RowKernels<float> kRowsBaseline = RowLoops<float, float, Baseline>::table();
const RowKernels<float, uint16_t> kBf16RowsBaseline = RowLoops<float, uint16_t, Baseline>::table();
const RowKernels<double> kRowsBaselineDouble = RowLoops<double, double, Baseline>::table();

}  // namespace hpctl::kernels
