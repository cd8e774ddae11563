// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/adamw.h"

#include <cmath>

#include "trainer/parallel/bf16_rounding.h"

namespace hpctl {

namespace {

float widened(float x) { return x; }
double widened(double x) { return x; }
float widened(uint16_t x) { return float_of_bf16(x); }
void put(float& to, float x) { to = x; }
void put(double& to, double x) { to = x; }
void put(uint16_t& to, float x) { to = bf16_of(x); }

template <typename T, typename M>
void update(const AdamStep& s, bool decayed, int64_t count, const AdamSource<T, M>& from,
            const AdamTarget<T, M>& to) {
  const T* __restrict p = from.param;
  const M* __restrict m = from.exp_avg;
  const M* __restrict v = from.exp_avg_sq;
  const T* __restrict gradient = from.gradient;
  T* __restrict new_p = to.param;
  M* __restrict new_m = to.exp_avg;
  M* __restrict new_v = to.exp_avg_sq;
  const T beta1 = static_cast<T>(s.beta1);
  const T beta2 = static_cast<T>(s.beta2);
  const T one_minus_beta1 = static_cast<T>(1.0 - s.beta1);
  const T one_minus_beta2 = static_cast<T>(1.0 - s.beta2);
  const T eps = static_cast<T>(s.eps);
  const T decay = static_cast<T>(decayed ? s.decay : 1.0);
  const T step_size = static_cast<T>(s.step_size);
  const T inverse_root_correction2 = static_cast<T>(s.inverse_root_correction2);
  const T gradient_scale = static_cast<T>(s.gradient_scale);
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * gradient_scale;
    const T next_m = beta1 * widened(m[i]) + one_minus_beta1 * g;
    const T next_v = beta2 * widened(v[i]) + one_minus_beta2 * g * g;
    const T denominator = std::sqrt(next_v) * inverse_root_correction2 + eps;
    put(new_m[i], next_m);
    put(new_v[i], next_v);
    new_p[i] = p[i] * decay - step_size * (next_m / denominator);
  }
}

}  // namespace

AdamStep::AdamStep(const OptimizerSpec& spec, uint64_t step, double learning_rate,
                   double gradient_scale)
    : number(static_cast<double>(step)),
      learning_rate(learning_rate),
      weight_decay(spec.weight_decay),
      beta1(spec.beta1),
      beta2(spec.beta2),
      eps(spec.eps),
      decay(1.0 - learning_rate * spec.weight_decay),
      step_size(learning_rate / (1.0 - std::pow(spec.beta1, static_cast<double>(step)))),
      inverse_root_correction2(1.0 /
                               std::sqrt(1.0 - std::pow(spec.beta2, static_cast<double>(step)))),
      gradient_scale(gradient_scale) {}

void adamw(const AdamStep& step, bool decayed, int64_t count, const AdamSource<float>& from,
           const AdamTarget<float>& to) {
  update(step, decayed, count, from, to);
}

void adamw(const AdamStep& step, bool decayed, int64_t count,
           const AdamSource<float, uint16_t>& from, const AdamTarget<float, uint16_t>& to) {
  update(step, decayed, count, from, to);
}

void adamw(const AdamStep& step, bool decayed, int64_t count, const AdamSource<double>& from,
           const AdamTarget<double>& to) {
  update(step, decayed, count, from, to);
}

}  // namespace hpctl
