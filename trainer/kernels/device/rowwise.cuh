// SPDX-License-Identifier: Apache-2.0
// What lies between the products of a layer, on a GPU: RMSNorm, SwiGLU, rotary positions;
// passes.cuh has the operands, trainer/kernels/rowwise.h the formulas, which the CPU has too.
#pragma once

#include "trainer/kernels/device/numbers.cuh"

namespace hpctl::device {

// Writes the sum of row `row` of x and of the addend, and gives element by element what a later
// operation would read of it. A thread reads again only what it has written itself.
template <typename T, int n>
inline Floats<n> added(const RmsNorm& p, const T* x, long long row, long long i) {
  Floats<n> v = load<n>(x + i);
  if (p.addend == nullptr) return v;
  const Floats<n> addend = load<n>(static_cast<const T*>(p.addend) + row * p.dim + i);
  Pack<T, n> sum;
  for (int k = 0; k < n; ++k) {
    put(sum.at[k], v.at[k] + addend.at[k]);
    v.at[k] = widened(sum.at[k]);
  }
  store_pack(static_cast<T*>(p.sum) + row * p.dim + i, sum);
  return v;
}

// kLanes threads have a row.
template <typename T, int kLanes>
inline void rms_norm(const RmsNorm& p) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const long long row =
      static_cast<long long>(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
  if (row >= p.rows) return;
  const T* const x = static_cast<const T*>(p.x) + row * p.dim;
  const T* const weight = static_cast<const T*>(p.weight);
  T* const y = static_cast<T*>(p.y) + row * p.dim;
  float squares = 0;
  for_row<T, kLanes>(lane, p.dim, p.packed, [&](auto number, long long i) {
    constexpr int n = decltype(number)::value;
    const Floats<n> v = added<T, n>(p, x, row, i);
    for (int k = 0; k < n; ++k) squares += v.at[k] * v.at[k];
  });
  const T* const normed = p.addend == nullptr ? x : static_cast<const T*>(p.sum) + row * p.dim;
  squares = over_lanes<kLanes>(squares, Add{});
  const float inverse = 1.0F / sqrtf(squares / static_cast<float>(p.dim) + p.eps);
  for_row<T, kLanes>(lane, p.dim, p.packed, [&](auto number, long long i) {
    constexpr int n = decltype(number)::value;
    Floats<n> v = load<n>(normed + i);
    const Floats<n> w = load<n>(weight + i);
    for (int k = 0; k < n; ++k) v.at[k] = v.at[k] * inverse * w.at[k];
    store<n>(y + i, v);
  });
  if (lane == 0) p.inverse_rms[row] = inverse;
}

// Where a thread adds up the weight's gradient for element i + k of a row. In shared memory
// neighbouring threads have neighbouring words.
template <int n>
inline long long place(const RmsNormBackward& p, long long i, int k) {
  return p.shared ? k * (p.dim / n) + i / n : i + k;
}

// `gradient` as it is stored, then the other gradient of x: two roundings, as of two operations.
template <typename T, int n>
inline Floats<n> with_other(const RmsNormBackward& p, const Floats<n>& gradient, long long at) {
  if (p.other_gradient == nullptr) return gradient;
  Floats<n> total = load<n>(static_cast<const T*>(p.other_gradient) + at);
  for (int k = 0; k < n; ++k) {
    T stored;
    put(stored, gradient.at[k]);
    total.at[k] = __fadd_rn(total.at[k], widened(stored));
  }
  return total;
}

template <typename T, int kLanes>
inline void rms_norm_backward_row(const RmsNormBackward& p, int lane, long long row, float* sums) {
  const T* const x = static_cast<const T*>(p.x) + row * p.dim;
  const T* const weight = static_cast<const T*>(p.weight);
  const T* const y_gradient = static_cast<const T*>(p.y_gradient) + row * p.dim;
  T* const x_gradient = static_cast<T*>(p.x_gradient) + row * p.dim;
  const float inverse = p.inverse_rms[row];
  float product = 0;
  for_row<T, kLanes>(lane, p.dim, p.packed, [&](auto number, long long i) {
    constexpr int n = decltype(number)::value;
    const Floats<n> v = load<n>(x + i);
    const Floats<n> w = load<n>(weight + i);
    const Floats<n> g = load<n>(y_gradient + i);
    for (int k = 0; k < n; ++k) product += g.at[k] * w.at[k] * v.at[k];
  });
  product = over_lanes<kLanes>(product, Add{});
  const float back = product * inverse * inverse / static_cast<float>(p.dim);
  for_row<T, kLanes>(lane, p.dim, p.packed, [&](auto number, long long i) {
    constexpr int n = decltype(number)::value;
    const Floats<n> v = load<n>(x + i);
    const Floats<n> w = load<n>(weight + i);
    const Floats<n> g = load<n>(y_gradient + i);
    Floats<n> result;
    for (int k = 0; k < n; ++k) {
      result.at[k] = inverse * (g.at[k] * w.at[k] - v.at[k] * back);
      sums[place<n>(p, i, k)] += g.at[k] * (v.at[k] * inverse);
    }
    store<n>(x_gradient + i, with_other<T, n>(p, result, row * p.dim + i));
  });
}

// Each group of kLanes threads adds up over its own rows, in memory of its own.
template <typename T, int kLanes>
inline void rms_norm_backward(const RmsNormBackward& p) {
  constexpr int kGroups = kThreads / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  float* const partial = p.partials + blockIdx.x * p.dim;
  float* const sums = p.shared ? dynamic_shared() + group * p.dim : partial;
  for_row<T, kLanes>(lane, p.dim, p.packed, [&](auto number, long long i) {
    constexpr int n = decltype(number)::value;
    for (int k = 0; k < n; ++k) sums[place<n>(p, i, k)] = 0;
  });
  const long long begin = blockIdx.x * p.block_rows;
  const long long end = begin + p.block_rows < p.rows ? begin + p.block_rows : p.rows;
  for (long long row = begin + group; row < end; row += kGroups) {
    rms_norm_backward_row<T, kLanes>(p, lane, row, sums);
  }
  if (!p.shared) return;
  __syncthreads();
  const int pack = p.packed ? kPack<T> : 1;
  for (long long i = threadIdx.x; i < p.dim; i += kThreads) {
    const long long at = i % pack * (p.dim / pack) + i / pack;
    float total = 0;
    for (int g = 0; g < kGroups; ++g) total += dynamic_shared()[g * p.dim + at];
    partial[i] = total;
  }
}

// A warp has a part of the rows of kColumnsOfBlock columns.
template <typename T>
inline void sum_columns(const SumColumns& p) {
  constexpr int kParts = kThreads / kColumnsOfBlock;
  __shared__ float sums[kParts][kColumnsOfBlock];
  const int at = static_cast<int>(threadIdx.x) % kColumnsOfBlock;
  const int part = static_cast<int>(threadIdx.x) / kColumnsOfBlock;
  const long long column = static_cast<long long>(blockIdx.x) * kColumnsOfBlock + at;
  float sum = 0;
  if (column < p.dim) {
    for (long long row = part; row < p.rows; row += kParts) sum += p.from[row * p.dim + column];
  }
  sums[part][at] = sum;
  __syncthreads();
  if (part != 0 || column >= p.dim) return;
  float total = 0;
  for (int q = 0; q < kParts; ++q) total += sums[q][at];
  put(static_cast<T*>(p.to)[column], total);
}

inline float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

// Where element i of rows of `width` is, if these begin `stride` elements apart.
inline long long place_in_rows(long long i, long long width, long long stride) {
  return stride == width ? i : i / width * stride + i % width;
}

template <typename T>
inline void swiglu(const Swiglu& p) {
  for_own<kPack<T>>(p.count, p.packed, [&](auto number, long long i) {
    constexpr int n = decltype(number)::value;
    const long long at = place_in_rows(i, p.width, p.stride);
    const Floats<n> gate = load<n>(static_cast<const T*>(p.gate) + at);
    const Floats<n> up = load<n>(static_cast<const T*>(p.up) + at);
    Floats<n> y;
    for (int k = 0; k < n; ++k) y.at[k] = gate.at[k] * sigmoid(gate.at[k]) * up.at[k];
    store<n>(static_cast<T*>(p.y) + i, y);
  });
}

template <typename T>
inline void swiglu_backward(const SwigluBackward& p) {
  for_own<kPack<T>>(p.count, p.packed, [&](auto number, long long i) {
    constexpr int n = decltype(number)::value;
    const long long at = place_in_rows(i, p.width, p.stride);
    const Floats<n> gate = load<n>(static_cast<const T*>(p.gate) + at);
    const Floats<n> up = load<n>(static_cast<const T*>(p.up) + at);
    const Floats<n> gradient = load<n>(static_cast<const T*>(p.y_gradient) + i);
    Floats<n> of_gate;
    Floats<n> of_up;
    for (int k = 0; k < n; ++k) {
      const float s = sigmoid(gate.at[k]);
      of_up.at[k] = gradient.at[k] * gate.at[k] * s;
      of_gate.at[k] = gradient.at[k] * up.at[k] * (s * (1.0F + gate.at[k] * (1.0F - s)));
    }
    const long long to = place_in_rows(i, p.width, p.gradient_stride);
    store<n>(static_cast<T*>(p.gate_gradient) + to, of_gate);
    store<n>(static_cast<T*>(p.up_gradient) + to, of_up);
  });
}

template <typename T>
inline void rotary(const Rotary& p) {
  for_own<kPack<T>>(p.tokens * p.heads * p.half, p.packed, [&](auto number, long long at) {
    constexpr int n = decltype(number)::value;
    const long long head = at / p.half;
    const long long i = at % p.half;
    const long long token = head / p.heads;
    const long long position = p.positions != nullptr ? p.positions[token] : token % p.length;
    const Floats<n> cos = load<n>(p.cos + position * 2 * p.half + i);
    const Floats<n> sin = load<n>(p.sin + position * 2 * p.half + i);
    const long long from = token * p.stride + head % p.heads * 2 * p.half + i;
    const Floats<n> a = load<n>(static_cast<const T*>(p.x) + from);
    const Floats<n> b = load<n>(static_cast<const T*>(p.x) + from + p.half);
    Floats<n> turned_a;
    Floats<n> turned_b;
    for (int k = 0; k < n; ++k) {
      const float s = p.sign * sin.at[k];
      turned_a.at[k] = a.at[k] * cos.at[k] - b.at[k] * s;
      turned_b.at[k] = b.at[k] * cos.at[k] + a.at[k] * s;
    }
    const long long to = head * 2 * p.half + i;
    store<n>(static_cast<T*>(p.y) + to, turned_a);
    store<n>(static_cast<T*>(p.y) + to + p.half, turned_b);
  });
}

}  // namespace hpctl::device
