// SPDX-License-Identifier: Apache-2.0
// The source of rowwise.h at one level; `Level` as in attention_blocks.h. All is in vectors of our
// own: sums, which the compiler may not reorder, and conversions of bf16, which belong beside the
// arithmetic, in registers. A pass is copied, because for the compiler a store may change what a
// reference stands for.
#pragma once

#include "trainer/kernels/rowwise.h"
#include "trainer/kernels/vectors.h"

namespace hpctl::kernels {

template <typename T, typename S, typename Level>
class RowLoops {
 public:
  static constexpr RowKernels<T, S> table() {
    return {rms_norm, rms_norm_backward, swiglu, swiglu_backward, log_sums, cross_entropy_backward};
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

  // work(offset, count) for vectors of elements from `begin` to `end`, the last of which may be
  // shorter.
  template <typename Work>
  [[gnu::always_inline]] static void for_vectors(int64_t begin, int64_t end, const Work& work) {
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) work(i, kLanes);
    if (i < end) work(i, end - i);
  }

  // `to` may be `b`.
  static void add(const S* a, const S* b, S* to, int64_t count) {
    for_vectors(0, count, [&](int64_t i, int64_t n) {
      L::store_part(to + i, L::load_part(a + i, n, 0) + L::load_part(b + i, n, 0), n);
    });
  }

  static void rms_norm(const RmsNormForward<T, S>& pass, int64_t begin, int64_t end) {
    const RmsNormForward<T, S> p = pass;
    for (int64_t row = begin; row < end; ++row) {
      const S* x = p.x + row * p.dim;
      S* y = p.y + row * p.dim;
      if (p.addend != nullptr) {
        add(x, p.addend + row * p.dim, p.sum + row * p.dim, p.dim);
        x = p.sum + row * p.dim;
      }
      const T squares = sum(
          p.dim,
          [&](int64_t i) {
            const Vector v = L::load(x + i);
            return v * v;
          },
          [&](int64_t i) { return L::load_one(x + i) * L::load_one(x + i); });
      const T inverse = 1 / root(squares / static_cast<T>(p.dim) + static_cast<T>(p.eps));
      for_vectors(0, p.dim, [&](int64_t i, int64_t n) {
        const Vector weight = L::load_part(p.weight + i, n, 0);
        L::store_part(y + i, L::load_part(x + i, n, 0) * inverse * weight, n);
      });
      p.inverse_rms[row] = inverse;
    }
  }

  // With r the inverse root and g the gradient of y times the weight, the gradient of x is
  // r * (g - x * r^2 * mean(g * x)).
  static void rms_norm_backward(const RmsNormBackward<T, S>& pass, int64_t begin, int64_t end) {
    const RmsNormBackward<T, S> p = pass;
    for (int64_t row = begin; row < end; ++row) {
      const S* x = p.x + row * p.dim;
      const S* y_gradient = p.y_gradient + row * p.dim;
      S* x_gradient = p.x_gradient + row * p.dim;
      const T inverse = p.inverse_rms[row];
      const T product = sum(
          p.dim,
          [&](int64_t i) {
            return L::load(y_gradient + i) * L::load(p.weight + i) * L::load(x + i);
          },
          [&](int64_t i) {
            return L::load_one(y_gradient + i) * p.weight[i] * L::load_one(x + i);
          });
      const T back = product * inverse * inverse / static_cast<T>(p.dim);
      for_vectors(0, p.dim, [&](int64_t i, int64_t n) {
        const Vector in = L::load_part(x + i, n, 0);
        const Vector gradient = L::load_part(y_gradient + i, n, 0);
        const Vector weight = L::load_part(p.weight + i, n, 0);
        const Vector before = L::load_part(p.weight_gradient + i, n, 0);
        L::store_part(x_gradient + i, inverse * (gradient * weight - in * back), n);
        L::store_part(p.weight_gradient + i, before + gradient * (in * inverse), n);
      });
      // A separate loop: the sum that this is added to must have been rounded.
      if (p.other_gradient != nullptr) {
        add(p.other_gradient + row * p.dim, x_gradient, x_gradient, p.dim);
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

  static void swiglu(const SwigluForward<T, S>& pass, int64_t begin, int64_t end) {
    const SwigluForward<T, S> p = pass;
    for_vectors(begin, end, [&](int64_t i, int64_t count) {
      const Vector gate = L::load_part(p.gate + i, count, 0);
      const Vector up = L::load_part(p.up + i, count, 0);
      L::store_part(p.y + i, gate * sigmoid(gate) * up, count);
    });
  }

  // The derivative of x * s(x) is s * (1 + x * (1 - s)).
  static void swiglu_backward(const SwigluBackward<T, S>& pass, int64_t begin, int64_t end) {
    const SwigluBackward<T, S> p = pass;
    for_vectors(begin, end, [&](int64_t i, int64_t count) {
      const Vector gate = L::load_part(p.gate + i, count, 0);
      const Vector up = L::load_part(p.up + i, count, 0);
      const Vector gradient = L::load_part(p.y_gradient + i, count, 0);
      const Vector s = sigmoid(gate);
      L::store_part(p.up_gradient + i, gradient * gate * s, count);
      L::store_part(p.gate_gradient + i, gradient * up * (s * (kOne + gate * (kOne - s))), count);
    });
  }

  // Four at a time, because each comparison waits for the one before. NaN may get lost here, but
  // not in the sum of exponentials.
  static T greatest(const S* values, int64_t count) {
    Vector tops[4];
    for (Vector& top : tops) top = L::all(-kInfinity);
    int64_t i = 0;
    for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
      for (int64_t k = 0; k < 4; ++k) {
        tops[k] = L::greater(tops[k], L::load(values + i + k * kLanes));
      }
    }
    for_vectors(i, count, [&](int64_t at, int64_t n) {
      tops[0] = L::greater(tops[0], L::load_part(values + at, n, -kInfinity));
    });
    const Vector all = L::greater(L::greater(tops[0], tops[1]), L::greater(tops[2], tops[3]));
    T top = all[0];
    for (int64_t lane = 1; lane < kLanes; ++lane) top = all[lane] > top ? all[lane] : top;
    return top;
  }

  static void log_sums(const LogSums<T, S>& pass, int64_t begin, int64_t end) {
    const LogSums<T, S> p = pass;
    for (int64_t row = begin; row < end; ++row) {
      const S* logits = p.logits + row * p.vocab;
      const T top = greatest(logits, p.vocab);
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

  static void cross_entropy_backward(const CrossEntropyBackward<T, S>& pass, int64_t begin,
                                     int64_t end) {
    const CrossEntropyBackward<T, S> p = pass;
    for (int64_t row = begin; row < end; ++row) {
      const S* logits = p.logits + row * p.vocab;
      S* gradient = p.logits_gradient + row * p.vocab;
      const int64_t target = p.targets[row];
      const T weight = target < 0 ? 0 : p.weight;
      const T factor = weight + p.slopes[row];
      const T log_sum = p.log_sums[row];
      const T of_target = target < 0 ? 0 : softmax_of_one(logits + target, log_sum, factor);
      for_vectors(0, p.vocab, [&](int64_t i, int64_t count) {
        L::store_part(gradient + i, softmax(logits + i, count, log_sum, factor), count);
      });
      if (target >= 0) L::store_one(gradient + target, of_target - weight);
    }
  }

  // Times `factor`.
  [[gnu::always_inline]] static Vector softmax(const S* logits, int64_t count, T log_sum,
                                               T factor) {
    return L::exp2((L::load_part(logits, count, 0) - log_sum) * kLog2E) * factor;
  }

  // Not part of the caller: what that subtracts is not to be contracted with the product.
  [[gnu::noinline]] static T softmax_of_one(const S* logit, T log_sum, T factor) {
    return softmax(logit, 1, log_sum, factor)[0];
  }
};

}  // namespace hpctl::kernels
