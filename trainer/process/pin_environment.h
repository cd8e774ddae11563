// SPDX-License-Identifier: Apache-2.0
// Environment variables that numeric libraries read when they are loaded: what results depend on,
// and what memory does.
#pragma once

namespace hpctl {

// Sets, where the user has not: that a GPU's memory grows in segments, so that blocks of many sizes
// do not leave it in pieces (PYTORCH_CUDA_ALLOC_CONF); cuBLAS's order of sums; one thread for
// OpenBLAS and OpenMP, and the OpenBLAS kernel that the CPU's instruction set allows. OpenBLAS does
// not know CPUs younger than itself and would fall back to SSE3 there (measured: 38 instead of 150
// GFLOP/s). Call before LibTorch is loaded.
void pin_environment();

// glibc reads before main() what its allocator is to do. Where the user has told it nothing
// (GLIBC_TUNABLES), the process becomes its own program once more, with huge pages asked for: the
// same process with the same arguments and descriptors, a millisecond later. Returns then, and
// where the program cannot be started again. `arguments`: main()'s. Call before anything is opened
// or read.
void ask_for_huge_pages(char** arguments);

}  // namespace hpctl
