// SPDX-License-Identifier: Apache-2.0
// The source of rows.h at one level; `Level` as in attention_blocks.h. Loops without a sum are left
// to the vectoriser; sums, which it may not reorder, are in vectors of our own.
#pragma once

#include "trainer/kernels/bf16.h"
#include "trainer/kernels/rows.h"
#include "trainer/kernels/vectors.h"

namespace hpctl::kernels {

template <typename T, typename Level>
class RowLoops {
 public:
  static constexpr RowKernels<T> table() {
    return {rms_norm, rms_norm_backward,      swiglu, swiglu_backward,
            log_sums, cross_entropy_backward, widen,  narrow};
  }

 private:
  using L = Lanes<T, Level>;
  using Vector = typename L::Vector;

  static constexpr int64_t kLanes = L::kCount;
  static constexpr T kOne = 1;
  static constexpr T kInfinity = __builtin_huge_valf();
  static constexpr T kLog2E = static_cast<T>(1.4426950408889634);
  static constexpr T kLn2 = static_cast<T>(0.6931471805599453);

  // Sum of value(i), where value(i) is the vector of elements i to i + kLanes and last(i) element
  // i.
  template <typename Value, typename Last>
  [[gnu::always_inline]] static T sum(int64_t count, const Value& value, const Last& last) {
    Vector sums[4] = {};
    int64_t i = 0;
    for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
      for (int64_t k = 0; k < 4; ++k) sums[k] += value(i + k * kLanes);
    }
    for (; i + kLanes <= count; i += kLanes) sums[0] += value(i);
    T total = L::sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < count; ++i) total += last(i);
    return total;
  }

  static void rms_norm(const RmsNormForward<T>& p, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = p.x + row * p.dim;
      T* y = p.y + row * p.dim;
      const T squares = sum(
          p.dim,
          [&](int64_t i) {
            const Vector v = L::load(x + i);
            return v * v;
          },
          [&](int64_t i) { return x[i] * x[i]; });
      const T inverse = 1 / root(squares / static_cast<T>(p.dim) + static_cast<T>(p.eps));
      for (int64_t i = 0; i < p.dim; ++i) y[i] = x[i] * inverse * p.weight[i];
      p.inverse_rms[row] = inverse;
    }
  }

  // With r the inverse root and g the gradient of y times the weight, the gradient of x is
  // r * (g - x * r^2 * mean(g * x)).
  static void rms_norm_backward(const RmsNormBackward<T>& p, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = p.x + row * p.dim;
      const T* y_gradient = p.y_gradient + row * p.dim;
      T* x_gradient = p.x_gradient + row * p.dim;
      const T inverse = p.inverse_rms[row];
      const T product = sum(
          p.dim,
          [&](int64_t i) {
            return L::load(y_gradient + i) * L::load(p.weight + i) * L::load(x + i);
          },
          [&](int64_t i) { return y_gradient[i] * p.weight[i] * x[i]; });
      const T back = product * inverse * inverse / static_cast<T>(p.dim);
      for (int64_t i = 0; i < p.dim; ++i) {
        x_gradient[i] = inverse * (y_gradient[i] * p.weight[i] - x[i] * back);
      }
      for (int64_t i = 0; i < p.dim; ++i) {
        p.weight_gradient[i] += y_gradient[i] * (x[i] * inverse);
      }
    }
  }

  static T root(T x) {
    if constexpr (sizeof(T) == 4) {
      return __builtin_sqrtf(x);
    } else {
      return __builtin_sqrt(x);
    }
  }

  // 1 / (1 + exp(-x)); exp2 is bounded, since it is not defined above 127.
  [[gnu::always_inline]] static Vector sigmoid(Vector x) {
    return kOne / (kOne + L::exp2(L::lesser(x * -kLog2E, L::all(126))));
  }

  // work(offset, load, store) for vectors of elements from `begin` to `end`, the last of which may
  // be shorter.
  template <typename Work>
  [[gnu::always_inline]] static void for_vectors(int64_t begin, int64_t end, const Work& work) {
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) work(i, kLanes);
    if (i < end) work(i, end - i);
  }

  static void swiglu(const SwigluForward<T>& p, int64_t begin, int64_t end) {
    for_vectors(begin, end, [&](int64_t i, int64_t count) {
      const Vector gate = L::load_part(p.gate + i, count, 0);
      const Vector up = L::load_part(p.up + i, count, 0);
      L::store_part(p.y + i, gate * sigmoid(gate) * up, count);
    });
  }

  // The derivative of x * s(x) is s * (1 + x * (1 - s)).
  static void swiglu_backward(const SwigluBackward<T>& p, int64_t begin, int64_t end) {
    for_vectors(begin, end, [&](int64_t i, int64_t count) {
      const Vector gate = L::load_part(p.gate + i, count, 0);
      const Vector up = L::load_part(p.up + i, count, 0);
      const Vector gradient = L::load_part(p.y_gradient + i, count, 0);
      const Vector s = sigmoid(gate);
      L::store_part(p.up_gradient + i, gradient * gate * s, count);
      L::store_part(p.gate_gradient + i, gradient * up * (s * (kOne + gate * (kOne - s))), count);
    });
  }

  static void log_sums(const LogSums<T>& p, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* logits = p.logits + row * p.vocab;
      Vector tops = L::all(-kInfinity);
      for_vectors(0, p.vocab, [&](int64_t i, int64_t count) {
        tops = L::greater(tops, L::load_part(logits + i, count, -kInfinity));
      });
      T top = tops[0];
      for (int64_t i = 1; i < kLanes; ++i) top = tops[i] > top ? tops[i] : top;
      Vector total{};
      for_vectors(0, p.vocab, [&](int64_t i, int64_t count) {
        total += L::exp2((L::load_part(logits + i, count, -kInfinity) - top) * kLog2E);
      });
      p.log_sums[row] = top + kLn2 * log2(L::sum(total));
    }
  }

  static T log2(T x) {
    if constexpr (sizeof(T) == 4) {
      return __builtin_log2f(x);
    } else {
      return __builtin_log2(x);
    }
  }

  static void cross_entropy_backward(const CrossEntropyBackward<T>& p, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* logits = p.logits + row * p.vocab;
      T* gradient = p.logits_gradient + row * p.vocab;
      const int64_t target = p.targets[row];
      const T weight = target < 0 ? 0 : p.weight;
      const T factor = weight + p.slopes[row];
      for_vectors(0, p.vocab, [&](int64_t i, int64_t count) {
        const Vector logit = L::load_part(logits + i, count, 0);
        L::store_part(gradient + i, L::exp2((logit - p.log_sums[row]) * kLog2E) * factor, count);
      });
      if (target >= 0) gradient[target] -= weight;
    }
  }

  static void widen(const uint16_t* __restrict from, T* __restrict to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = float_of_bf16(from[i]);
  }

  static void narrow(const T* __restrict from, uint16_t* __restrict to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = bf16_of(static_cast<float>(from[i]));
  }
};

}  // namespace hpctl::kernels
