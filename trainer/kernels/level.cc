// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/level.h"

namespace hpctl {

namespace {

std::vector<KernelLevel> find_levels() {
  std::vector<KernelLevel> levels = {KernelLevel::kBaseline};
#ifdef __x86_64__
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return levels;
  levels.push_back(KernelLevel::kAvx2);
  if (__builtin_cpu_supports("avx512f")) levels.push_back(KernelLevel::kAvx512);
#endif
  return levels;
}

}  // namespace

const char* to_word(KernelLevel level) {
  switch (level) {
    case KernelLevel::kBaseline:
      return "baseline";
    case KernelLevel::kAvx2:
      return "avx2";
    case KernelLevel::kAvx512:
      return "avx512";
  }
  return "unknown";
}

const std::vector<KernelLevel>& kernel_levels() {
  static const std::vector<KernelLevel> levels = find_levels();
  return levels;
}

KernelLevel kernel_level() { return kernel_levels().back(); }

}  // namespace hpctl
