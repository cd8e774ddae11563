// SPDX-License-Identifier: Apache-2.0
// Instruction sets that the kernels of this directory are compiled for. The best that the processor
// has is chosen once; every source of a kernel is compiled once per level, each with its own flags
// (trainer/kernels/CMakeLists.txt).
//
// Such a source must not bring an inline function of another header into the program: the linker
// keeps one copy of it, possibly the one with instructions that this processor lacks. It therefore
// calls only templates over a type of its own unnamed namespace, functions that are defined
// elsewhere, and builtins.
#pragma once

#include <vector>

namespace hpctl {

enum class KernelLevel { kBaseline, kAvx2, kAvx512 };

// "baseline" (what the compiler takes for granted), "avx2" (with FMA), "avx512" (its foundation).
const char* to_word(KernelLevel level);
// All that this processor has, ascending.
const std::vector<KernelLevel>& kernel_levels();
// The last of them.
KernelLevel kernel_level();

// Whether the processor multiplies tiles of bf16 (AMX), which LibTorch then does by itself.
bool has_bf16_matrix_units();

}  // namespace hpctl
