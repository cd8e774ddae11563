// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/level.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

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

bool has_bf16_matrix_units() {
#ifdef __x86_64__
  constexpr unsigned kFeatures = 7;
  constexpr unsigned kAmxBf16AndTile = 1U << 22U | 1U << 24U;  // of edx
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  const bool known = __get_cpuid_count(kFeatures, 0, &eax, &ebx, &ecx, &edx) != 0;
  return known && (edx & kAmxBf16AndTile) == kAmxBf16AndTile;
#else
  return false;
#endif
}

KernelLevel kernel_level() { return kernel_levels().back(); }

}  // namespace hpctl
