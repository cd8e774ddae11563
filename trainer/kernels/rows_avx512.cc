// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/rows_levels.h"
#include "trainer/kernels/rows_loops.h"

namespace hpctl::kernels {

namespace {

struct Avx512 {
  static constexpr int kBytes = 64;
};

}  // namespace

const RowKernels<float> kRowsAvx512 = RowLoops<float, float, Avx512>::table();
const RowKernels<float, uint16_t> kBf16RowsAvx512 = RowLoops<float, uint16_t, Avx512>::table();

}  // namespace hpctl::kernels
