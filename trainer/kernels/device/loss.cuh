// SPDX-License-Identifier: Apache-2.0
// The cross entropy of logits with its z-loss, on a GPU. The logits are read once forward: each
// thread keeps the largest that it has seen and the sum relative to that.
#pragma once

#include "trainer/kernels/device/numbers.cuh"

namespace hpctl::device {

// What logits are taken relative to: none is -inf beside one that is finite.
inline float base_of(float top) { return top == -infinity() ? 0.0F : top; }

template <typename T>
inline void log_sums(const LogSums& p) {
  const T* const logits = static_cast<const T*>(p.logits) + blockIdx.x * p.vocab;
  float top = -infinity();
  float sum = 0;
  for_row<T, kThreads>(threadIdx.x, p.vocab, p.packed, [&](auto number, long long i) {
    constexpr int n = decltype(number)::value;
    const Floats<n> v = load<n>(logits + i);
    float high = top;
    for (int k = 0; k < n; ++k) high = fmaxf(high, v.at[k]);
    if (high > top) {
      sum *= expf(top - high);
      top = high;
    }
    for (int k = 0; k < n; ++k) sum += expf(v.at[k] - base_of(top));
  });
  const float base = base_of(over_lanes<kThreads>(top, Greater{}));
  const float total = over_lanes<kThreads>(sum * expf(top - base), Add{});
  if (threadIdx.x == 0) p.log_sums[blockIdx.x] = base + logf(total);
}

template <typename T>
inline void losses(const Losses& p) {
  const T* const logits = static_cast<const T*>(p.logits);
  double entropy = 0;
  double squares = 0;
  for (long long row = threadIdx.x; row < p.rows; row += kThreads) {
    const long long target = p.targets[row];
    if (target < 0) continue;
    const double log_sum = p.log_sums[row];
    entropy +=
        target < p.vocab ? log_sum - widened(logits[row * p.vocab + target]) : not_a_number();
    squares += log_sum * log_sum;
  }
  entropy = over_lanes<kThreads>(entropy, Add{});
  squares = over_lanes<kThreads>(squares, Add{});
  if (threadIdx.x != 0) return;
  *p.entropy = static_cast<float>(entropy);
  *p.objective = static_cast<float>(entropy + p.z_loss * squares);
}

template <typename T>
inline void cross_entropy_backward(const CrossEntropyBackward& p) {
  const long long row = blockIdx.x;
  const T* const logits = static_cast<const T*>(p.logits) + row * p.vocab;
  T* const gradient = static_cast<T*>(p.logits_gradient) + row * p.vocab;
  const long long target = p.targets[row];
  const float log_sum = p.log_sums[row];
  const float weight = target < 0 ? 0.0F : *p.weight;
  const float factor = weight + 2.0F * p.z_loss * weight * log_sum;
  for_row<T, kThreads>(threadIdx.x, p.vocab, p.packed, [&](auto number, long long i) {
    constexpr int n = decltype(number)::value;
    Floats<n> v = load<n>(logits + i);
    for (int k = 0; k < n; ++k) {
      v.at[k] = expf(v.at[k] - log_sum) * factor - (i + k == target ? weight : 0.0F);
    }
    store<n>(gradient + i, v);
  });
}

}  // namespace hpctl::device
