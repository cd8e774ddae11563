// SPDX-License-Identifier: Apache-2.0
// Causal attention in blocks, forward and backward, for the CPU, in fp32 and fp64, and in bf16 on
// matrix units. It computes no score of the future and stores none beyond one block of keys and
// queries: memory and traffic grow with the tokens, not with their square. With a sliding window
// the work does so too: blocks before it are not touched. If H query heads share K key heads, keys
// and values are not repeated.
//
// The work is divided into units: one document and one key head with its H / K query heads. A unit
// writes only its own memory, so units may run at the same time, and its result depends only on its
// operands: the same bits in any order and on any number of threads. Between levels (level.h) bits
// differ.
//
// The softmax has the online form (Milakov and Gimelshein, arXiv 1805.02867), and the backward pass
// computes the weights again from the logarithm of their sum (Dao, arXiv 2307.08691). NaN in an
// operand makes every dependent result NaN.
//
// Error in fp32: the weights are exp2 of scores rounded to fp32, with a relative error of at most
// 2^-22 beside that rounding; weights below 2^-126 are 0. Sums run over fp32 in a fixed order.
//
// bf16 (uint16_t) needs matrix units (level.h: has_bf16_matrix_units). Results are rounded. Queries
// and keys are also rounded once they are turned, weights and the gradients of scores before they
// become factors of the next product. Sums, softmax and logarithms are fp32, weights have a
// relative error of at most 2^-18 beside that rounding, and subnormal numbers count as 0. Tests
// check the results against the bounds below.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "trainer/kernels/level.h"

namespace hpctl {

inline constexpr int64_t kNoWindow = std::numeric_limits<int64_t>::max();

struct AttentionShape {
  int64_t tokens;  // of all documents
  int64_t heads;
  int64_t kv_heads;  // divides `heads`; query heads n * H / K and following share key head n
  int64_t head_dim;
  double scale;                // of the scores; above 0
  int64_t window = kNoWindow;  // keys that a query sees at most, its own included; 1 or more
};

// Rows of a tensor [tokens, heads, head_dim]: the row of token t and head n is at data + t * stride
// + n * head_dim.
template <typename T>
struct TokenRows {
  T* data;
  int64_t stride;
};

// Rotary positions, or none (null): element d of a query or key, d < head_dim / 2, and element d +
// head_dim / 2 are turned by the angle whose cosine and sine are at p * head_dim / 2 + d, p the
// position in the document. Operands and gradients are the values before the turn.
template <typename T>
struct RotaryTables {
  const T* cos = nullptr;  // [positions, head_dim / 2]
  const T* sin = nullptr;
};

// The type of sums over T.
template <typename T>
struct WideOf {
  using Type = T;
};
template <>
struct WideOf<uint16_t> {
  using Type = float;
};
template <typename T>
using Wide = typename WideOf<T>::Type;

// `log_sums` [heads, tokens]: the base-2 logarithm of the sum of exp(score) over a query's keys,
// which the forward pass gives to the backward pass.
template <typename T>
struct AttentionForward {
  AttentionShape shape;
  TokenRows<const T> q;
  TokenRows<const T> k;
  TokenRows<const T> v;
  TokenRows<T> out;
  Wide<T>* log_sums;
  RotaryTables<Wide<T>> rotary = {};
};

template <typename T>
struct AttentionBackward {
  AttentionShape shape;
  TokenRows<const T> q;
  TokenRows<const T> k;
  TokenRows<const T> v;
  TokenRows<const T> out;
  TokenRows<const T> out_gradient;
  const Wide<T>* log_sums;
  TokenRows<T> q_gradient;
  TokenRows<T> k_gradient;
  TokenRows<T> v_gradient;
  RotaryTables<Wide<T>> rotary = {};
};

struct AttentionUnit {
  int64_t begin;   // first token of the document
  int64_t tokens;  // of the document
  int64_t kv_head;
};

// Bounds of errors: the largest difference from plain loops in fp64 over the same operands,
// relative to the largest number of its kind, for operands of the size of a normal distribution's.
// In fp32, of results and logarithms of sums, and of gradients; in fp64 the same.
inline constexpr double kAttentionErrorFp32 = 2e-6;
inline constexpr double kAttentionGradientErrorFp32 = 4e-6;
inline constexpr double kAttentionErrorFp64 = 1e-14;
inline constexpr double kAttentionGradientErrorFp64 = 1e-13;
// In bf16 on matrix units, of results and of gradients; and of logarithms of sums as they are, not
// relative: queries and keys are rounded once they are turned.
inline constexpr double kAttentionErrorBf16 = 1.0 / 128;
inline constexpr double kLogSumErrorBf16 = 1.0 / 32;

// Queries, and keys, of a block.
inline constexpr int64_t kAttentionBlock = 64;

// A thread's working memory, for units of up to `tokens` tokens: 4 * tokens * head_dim elements and
// a constant. Every part begins at a multiple of 64 bytes; `rounded` is the head dimension rounded
// up to 16 elements.
template <typename T>
class AttentionScratch {
 public:
  AttentionScratch(const AttentionShape& shape, int64_t tokens);
  ~AttentionScratch();
  AttentionScratch(const AttentionScratch&) = delete;
  AttentionScratch& operator=(const AttentionScratch&) = delete;

  int64_t rounded;
  T* keys;              // [tokens, head_dim], turned
  T* values;            // [tokens, head_dim]
  T* key_gradients;     // [tokens, rounded]
  T* value_gradients;   // [tokens, rounded]
  T* query_columns;     // [head_dim, block], turned and scaled
  T* gradient_columns;  // [head_dim, block]
  T* query_rows;        // [block, rounded], turned
  T* gradient_rows;     // [block, rounded]
  T* mixed;             // [head_dim, block]: mixed values, or gradients of queries
  T* scores;            // [block of keys, block of queries], then weights
  T* slopes;            // the same of gradients
  T* tops;              // [block]: greatest scores, or logarithms of sums
  T* sums;              // [block]: sums of weights, or products of results and their gradients

 private:
  struct Free {
    void operator()(T* memory) const;
  };
  std::unique_ptr<T[], Free> memory_;
};

// About the same for bf16, in the order of attention_amx.cc.
template <>
class AttentionScratch<uint16_t> {
 public:
  AttentionScratch(const AttentionShape& shape, int64_t tokens);
  ~AttentionScratch();
  AttentionScratch(const AttentionScratch&) = delete;
  AttentionScratch& operator=(const AttentionScratch&) = delete;

  void* memory() const { return memory_; }

 private:
  void* memory_;
};

// Computes one unit. fp64 has only the baseline.
void attention_forward(const AttentionForward<float>& pass, const AttentionUnit& unit,
                       const AttentionScratch<float>& scratch, KernelLevel level = kernel_level());
void attention_forward(const AttentionForward<double>& pass, const AttentionUnit& unit,
                       const AttentionScratch<double>& scratch);
void attention_backward(const AttentionBackward<float>& pass, const AttentionUnit& unit,
                        const AttentionScratch<float>& scratch, KernelLevel level = kernel_level());
void attention_backward(const AttentionBackward<double>& pass, const AttentionUnit& unit,
                        const AttentionScratch<double>& scratch);
void attention_forward(const AttentionForward<uint16_t>& pass, const AttentionUnit& unit,
                       const AttentionScratch<uint16_t>& scratch);
void attention_backward(const AttentionBackward<uint16_t>& pass, const AttentionUnit& unit,
                        const AttentionScratch<uint16_t>& scratch);

}  // namespace hpctl
