// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/optimizer.h"

#include "trainer/kernels/level_table.h"
#include "trainer/kernels/optimizer_levels.h"

namespace hpctl {

template <>
const OptimizerKernels<float>& optimizer_kernels<float>(KernelLevel level) {
  return kernels::table_at<kernels::kOptimizerBaseline, kernels::kOptimizerAvx2,
                           kernels::kOptimizerAvx512>(level);
}

template <>
const OptimizerKernels<double>& optimizer_kernels<double>(KernelLevel) {
  return kernels::kOptimizerBaselineDouble;
}

}  // namespace hpctl
