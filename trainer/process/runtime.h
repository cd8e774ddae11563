// SPDX-License-Identifier: Apache-2.0
// What computes: LibTorch, BLAS, threads and instruction set. Results are bit-exact only while
// these stay the same, so they are fixed at start, logged, and recorded in every checkpoint.
#pragma once

#include <map>
#include <string>

#include "common/job/train_spec.h"
#include "trainer/device/device.h"

namespace hpctl {

// Sets the number of threads for ATen's operations and our kernels from OMP_NUM_THREADS, default
// one: full reductions and norms of ATen add in another order with each number. (OpenBLAS has read
// its own number from the environment when it was loaded; see pin_environment.h.) Also makes memory
// that a step frees stay with the process, or every step would fault the same pages in again. Call
// before the first tensor operation.
void prepare_runtime();

// Names and values of everything that the bits of a result depend on besides the job itself.
std::map<std::string, std::string> runtime_environment(Precision precision, const Device& device);

// The same as one line for the log.
std::string describe(const std::map<std::string, std::string>& environment);

}  // namespace hpctl
