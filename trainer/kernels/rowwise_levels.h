// SPDX-License-Identifier: Apache-2.0
// The alternatives of rowwise.cc: the same source, rowwise_loops.h, at every level.
#pragma once

#include "trainer/kernels/rowwise.h"

namespace hpctl::kernels {

extern const RowKernels<float> kRowsBaseline;
extern const RowKernels<double> kRowsBaselineDouble;
extern const RowKernels<float> kRowsAvx2;
extern const RowKernels<float> kRowsAvx512;
extern const RowKernels<float, uint16_t> kBf16RowsBaseline;
extern const RowKernels<float, uint16_t> kBf16RowsAvx2;
extern const RowKernels<float, uint16_t> kBf16RowsAvx512;

}  // namespace hpctl::kernels
