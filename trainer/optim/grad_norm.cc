// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/grad_norm.h"

#include <algorithm>

#include "trainer/kernels/optimizer.h"

namespace hpctl {

double sum_of_squares(const float* values, int64_t count) {
  return optimizer_kernels<float>().sum_of_squares(values, count);
}
double sum_of_squares(const double* values, int64_t count) {
  return optimizer_kernels<double>().sum_of_squares(values, count);
}

double clip_factor(double norm, double clip) {
  if (clip <= 0) return 1.0;
  return std::min(1.0, clip / (norm + 1e-6));
}

}  // namespace hpctl
