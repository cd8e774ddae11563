// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/rows.h"

#include "trainer/kernels/rows_levels.h"

namespace hpctl {

template <>
const RowKernels<float>& row_kernels<float>(KernelLevel level) {
#ifdef __x86_64__
  if (level == KernelLevel::kAvx512) return kernels::kRowsAvx512;
  if (level == KernelLevel::kAvx2) return kernels::kRowsAvx2;
#endif
  static_cast<void>(level);
  return kernels::kRowsBaseline;
}

template <>
const RowKernels<double>& row_kernels<double>(KernelLevel) {
  return kernels::kRowsBaselineDouble;
}

}  // namespace hpctl
