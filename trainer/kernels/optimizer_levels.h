// SPDX-License-Identifier: Apache-2.0
// The alternatives of optimizer.cc: the same source, optimizer_loops.h, at every level.
#pragma once

#include "trainer/kernels/optimizer.h"

namespace hpctl::kernels {

extern const OptimizerKernels<float> kOptimizerBaseline;
extern const OptimizerKernels<double> kOptimizerBaselineDouble;
extern const OptimizerKernels<float> kOptimizerAvx2;
extern const OptimizerKernels<float> kOptimizerAvx512;

}  // namespace hpctl::kernels
