// SPDX-License-Identifier: Apache-2.0
// The choice of a kernel's table: each kernel has one per level, an object that its source for the
// level defines (level.h).
#pragma once

#include "trainer/kernels/level.h"

namespace hpctl::kernels {

// Raise it with every change by which a kernel of this directory, at any level or on matrix units,
// computes other bits from the same operands: the order of a sum, an approximation, what is fused,
// flags in CMakeLists.txt. Checkpoints carry it (kernels_label()), and a job that resumes with
// another one reports that it is not bit-exact.
inline constexpr int kRevision = 1;

// The table for `level`. On processors other than x86 only the first of the three is defined, and
// kernel_levels() has no other.
template <const auto& baseline, const auto& avx2, const auto& avx512>
const auto& table_at(KernelLevel level) {
#ifdef __x86_64__
  if (level == KernelLevel::kAvx512) return avx512;
  if (level == KernelLevel::kAvx2) return avx2;
#endif
  static_cast<void>(level);
  return baseline;
}

}  // namespace hpctl::kernels
