// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/optimizer.h"

#include "trainer/kernels/optimizer_levels.h"

namespace hpctl {

template <>
const OptimizerKernels<float>& optimizer_kernels<float>(KernelLevel level) {
#ifdef __x86_64__
  if (level == KernelLevel::kAvx512) return kernels::kOptimizerAvx512;
  if (level == KernelLevel::kAvx2) return kernels::kOptimizerAvx2;
#endif
  static_cast<void>(level);
  return kernels::kOptimizerBaseline;
}

template <>
const OptimizerKernels<double>& optimizer_kernels<double>(KernelLevel) {
  return kernels::kOptimizerBaselineDouble;
}

}  // namespace hpctl
