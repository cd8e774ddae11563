// SPDX-License-Identifier: Apache-2.0
// Instruction sets that the kernels of this directory are compiled for. The best that the processor
// has is chosen once; every source of a kernel is compiled once per level, each with its own flags
// (trainer/kernels/CMakeLists.txt). The environment variable ONEDNN_MAX_CPU_ISA, which LibTorch's
// own products obey, limits the choice. So unlike processors can compute the same bits, and whole
// jobs are tested at each level (docs/decisions/1709-one-limit-of-the-instruction-set.md).
//
// Such a source must not bring an inline function of another header into the program: the linker
// keeps one copy of it, possibly the one with instructions that this processor lacks. It therefore
// calls only templates over a type of its unnamed namespace, functions that are defined elsewhere,
// and builtins.
#pragma once

#include <string>
#include <vector>

namespace hpctl {

enum class KernelLevel { kBaseline, kAvx2, kAvx512 };

// "baseline" (what the compiler takes for granted), "avx2" (with FMA), "avx512" (its foundation).
const char* to_word(KernelLevel level);
// All that this processor has, ascending.
const std::vector<KernelLevel>& kernel_levels();
// The last of them that `max_isa`, null or a word for ONEDNN_MAX_CPU_ISA, allows. Words that oneDNN
// does not know limit nothing, there and here.
KernelLevel kernel_level_under(const char* max_isa);
// That of ONEDNN_MAX_CPU_ISA as the process began with it.
KernelLevel kernel_level();
// The label that determines the bits of this process's kernels, for people and for comparison:
// "avx512 (revision 1, GCC 12.2.0)". Compilers choose where to fuse and in which lanes to add.
std::string kernels_label();

// In place of that choice, until it ends. For tests and benchmarks: no thread may compute while it
// changes.
class ScopedKernelLevel {
 public:
  // One of kernel_levels().
  explicit ScopedKernelLevel(KernelLevel level);
  ~ScopedKernelLevel();
  ScopedKernelLevel(const ScopedKernelLevel&) = delete;
  ScopedKernelLevel& operator=(const ScopedKernelLevel&) = delete;

 private:
  KernelLevel before_;
};

// How a CPU computes with operands of bf16: widened to fp32, like everything else, or as tiles on
// its matrix units (matmul.h). Bits differ.
enum class Bf16Products { kWidened, kMatrixUnits };

// "widened", "matrix_units".
const char* to_word(Bf16Products products);
// Returns whether the processor multiplies tiles of bf16 (AMX), beside the AVX-512 that the kernels
// for it use, and the system's kernel lets this process do so: it is asked once.
bool has_bf16_matrix_units();
// kMatrixUnits where there are any, and `max_isa`, as above, does not name an instruction set
// without them.
Bf16Products bf16_products_under(const char* max_isa);
// That of ONEDNN_MAX_CPU_ISA as the process began with it.
Bf16Products bf16_products();

// As ScopedKernelLevel.
class ScopedBf16Products {
 public:
  // kMatrixUnits only where there are any.
  explicit ScopedBf16Products(Bf16Products products);
  ~ScopedBf16Products();
  ScopedBf16Products(const ScopedBf16Products&) = delete;
  ScopedBf16Products& operator=(const ScopedBf16Products&) = delete;

 private:
  Bf16Products before_;
};

}  // namespace hpctl
