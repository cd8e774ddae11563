// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/grad_norm.h"

#include <algorithm>
#include <array>

namespace hpctl {

namespace {
constexpr int64_t kLanes = 16;

template <typename T>
double interleaved_sum(const T* values, int64_t count) {
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double x = values[i + lane];
      lanes[lane] += x * x;
    }
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) {
    const double x = values[i];
    lanes[lane] += x * x;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double sum_of_squares(const float* values, int64_t count) { return interleaved_sum(values, count); }
double sum_of_squares(const double* values, int64_t count) {
  return interleaved_sum(values, count);
}

double clip_factor(double norm, double clip) {
  if (clip <= 0) return 1.0;
  return std::min(1.0, clip / (norm + 1e-6));
}

}  // namespace hpctl
