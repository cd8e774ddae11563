// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/rowwise.h"

#include "trainer/kernels/level_table.h"
#include "trainer/kernels/rowwise_levels.h"

namespace hpctl {

template <>
const RowKernels<float>& row_kernels<float>(KernelLevel level) {
  return kernels::table_at<kernels::kRowsBaseline, kernels::kRowsAvx2, kernels::kRowsAvx512>(level);
}

template <>
const RowKernels<float, uint16_t>& row_kernels<float, uint16_t>(KernelLevel level) {
  return kernels::table_at<kernels::kBf16RowsBaseline, kernels::kBf16RowsAvx2,
                           kernels::kBf16RowsAvx512>(level);
}

template <>
const RowKernels<double>& row_kernels<double>(KernelLevel) {
  return kernels::kRowsBaselineDouble;
}

}  // namespace hpctl
