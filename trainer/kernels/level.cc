// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/level.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "trainer/kernels/level_table.h"

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

bool find_matrix_units() {
#ifdef __x86_64__
  constexpr unsigned kFeatures = 7;
  constexpr unsigned kAmxBf16AndTile = 1U << 22U | 1U << 24U;  // of edx
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  const bool known = __get_cpuid_count(kFeatures, 0, &eax, &ebx, &ecx, &edx) != 0;
  if (!known || (edx & kAmxBf16AndTile) != kAmxBf16AndTile) return false;
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512bf16")) {
    return false;
  }
  // The kernel saves tiles, 8 KiB of a thread's registers, only of processes that have asked.
  constexpr int64_t kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int64_t kTileData = 18;               // XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

struct Limit {
  KernelLevel level;
  bool tiles;  // of bf16
};

// Of oneDNN's words, in either case of letters. The instruction sets with tiles have AMX in their
// names; ALL, DEFAULT and what oneDNN does not know do not limit anything.
Limit limit_of(const char* isa) {
  std::string word(isa == nullptr ? "" : isa);
  for (char& letter : word) letter = static_cast<char>(std::toupper(letter));
  if (word == "SSE41" || word == "AVX") return {KernelLevel::kBaseline, false};
  if (word.starts_with("AVX2")) return {KernelLevel::kAvx2, false};
  const bool newer = word.starts_with("AVX512") || word.starts_with("AVX10");
  return {KernelLevel::kAvx512, !newer || word.find("AMX") != std::string::npos};
}

const char* max_isa_of_process() { return std::getenv("ONEDNN_MAX_CPU_ISA"); }

Bf16Products& chosen_products() {
  static Bf16Products chosen = bf16_products_under(max_isa_of_process());
  return chosen;
}

KernelLevel& chosen_level() {
  static KernelLevel chosen = kernel_level_under(max_isa_of_process());
  return chosen;
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

const char* to_word(Bf16Products products) {
  return products == Bf16Products::kMatrixUnits ? "matrix_units" : "widened";
}

bool has_bf16_matrix_units() {
  static const bool has = find_matrix_units();
  return has;
}

Bf16Products bf16_products_under(const char* max_isa) {
  return has_bf16_matrix_units() && limit_of(max_isa).tiles ? Bf16Products::kMatrixUnits
                                                            : Bf16Products::kWidened;
}

Bf16Products bf16_products() { return chosen_products(); }

ScopedBf16Products::ScopedBf16Products(Bf16Products products)
    : before_(std::exchange(chosen_products(), products)) {}

ScopedBf16Products::~ScopedBf16Products() { chosen_products() = before_; }

KernelLevel kernel_level_under(const char* max_isa) {
  return std::min(kernel_levels().back(), limit_of(max_isa).level);
}

KernelLevel kernel_level() { return chosen_level(); }

ScopedKernelLevel::ScopedKernelLevel(KernelLevel level)
    : before_(std::exchange(chosen_level(), level)) {}

ScopedKernelLevel::~ScopedKernelLevel() { chosen_level() = before_; }

std::string kernels_label() {
#ifdef __clang__
  constexpr const char* kCompiler = __VERSION__;  // it has the compiler's name
#else
  constexpr const char* kCompiler = "GCC " __VERSION__;
#endif
  return std::string(to_word(kernel_level())) + " (revision " + std::to_string(kernels::kRevision) +
         ", " + kCompiler + ")";
}

}  // namespace hpctl
