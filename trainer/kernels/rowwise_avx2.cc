// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/rowwise_levels.h"
#include "trainer/kernels/rowwise_loops.h"

namespace hpctl::kernels {

namespace {

struct Avx2 {
  static constexpr int kBytes = 32;
};

}  // namespace

const RowKernels<float> kRowsAvx2 = RowLoops<float, float, Avx2>::table();
const RowKernels<float, uint16_t> kBf16RowsAvx2 = RowLoops<float, uint16_t, Avx2>::table();

}  // namespace hpctl::kernels
