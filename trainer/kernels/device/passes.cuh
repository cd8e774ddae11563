// SPDX-License-Identifier: Apache-2.0
// What the host hands to the kernels of this directory: one structure each, passed by value. Read
// by the host's compiler and by NVRTC, which has no headers of its own: no includes here, and types
// that both have. There a function is the device's unless it says otherwise.
//
// Pointers are the device's. Operands without a type here have the one in the kernel's name: fp32,
// bf16 or fp16. `packed` says that all of them are aligned to, and rows as long as a multiple of,
// what a thread moves at once (kPackBytes of the kernel's type): the launcher finds out.
#pragma once

namespace hpctl::device {

inline constexpr int kThreads = 256;  // of every block
inline constexpr int kWarp = 32;
inline constexpr int kPackBytes = 16;

// Rows of up to so many elements are a warp's; longer ones a block's.
inline constexpr long long kLongestNarrow = 1024;

// As rowwise.h: y and inverse_rms of x, or, where `addend` is not null, of sum = x + addend, which is
// rounded first.
struct RmsNorm {
  long long rows;
  long long dim;
  float eps;
  int packed;
  const void* x;
  const void* weight;
  void* y;
  float* inverse_rms;
  const void* addend;
  void* sum;
};

// A block takes `block_rows` rows, and leaves its part of the weight's gradient in a row of
// `partials` [blocks, dim]. On the way it is in shared memory where it has room there. Where
// `other_gradient` is not null, it is added to the gradient of x, which is rounded before and
// after.
struct RmsNormBackward {
  long long rows;
  long long dim;
  long long block_rows;
  int packed;
  int shared;
  const void* x;
  const void* weight;
  const float* inverse_rms;
  const void* y_gradient;
  void* x_gradient;
  float* partials;
  const void* other_gradient;
};

// to[dim] = the sum of the rows of `from` [rows, dim].
struct SumColumns {
  long long rows;
  long long dim;
  const float* from;
  void* to;
};
inline constexpr int kColumnsOfBlock = kWarp;

// Rows of `width` elements, `count` in all; those of gate and of up begin `stride` elements apart,
// y is dense. A thread has one pack of the elements, or what is left of one.
struct Swiglu {
  long long count;
  long long width;
  long long stride;
  int packed;
  const void* gate;
  const void* up;
  void* y;
};

// Likewise; rows of the gradients of gate and of up begin `gradient_stride` elements apart.
struct SwigluBackward {
  long long count;
  long long width;
  long long stride;
  long long gradient_stride;
  int packed;
  const void* gate;
  const void* up;
  const void* y_gradient;
  void* gate_gradient;
  void* up_gradient;
};

// A block has a row of the logits [rows, vocab].
struct LogSums {
  long long vocab;
  int packed;
  const void* logits;
  float* log_sums;
};

// One block. Over the rows with a target of 0 or more: entropy is the sum of log_sum - logit of the
// target, objective that plus z_loss * the sum of the squares of log_sums. Not a number where a
// target is not one of the words.
struct Losses {
  long long rows;
  long long vocab;
  double z_loss;
  const void* logits;
  const float* log_sums;
  const long long* targets;
  float* entropy;
  float* objective;
};

// A block has a row. `weight` is the gradient of the objective: a number on the device, so that
// the host need not know it.
struct CrossEntropyBackward {
  long long vocab;
  int packed;
  float z_loss;
  const void* logits;
  const float* log_sums;
  const long long* targets;
  const float* weight;
  void* logits_gradient;
};

// Pairs (i, i + half) of each head of x [tokens, heads, 2 * half] are turned by the angle whose
// cosine and sine are at [position, i] of the tables [., 2 * half]. The position of a token is in
// `positions`, or where that is null its number modulo `length`. `sign` -1 turns back. Tokens of x
// begin `stride` elements apart, y is dense. A thread has a pack of first halves and that of second
// halves.
struct Rotary {
  long long tokens;
  long long heads;
  long long half;
  long long length;
  long long stride;
  int packed;
  float sign;
  const void* x;
  const float* cos;
  const float* sin;
  const long long* positions;
  void* y;
};

// As optim/adamw.h, whose names these are; a thread has kAdamElements. Moments have the type of the
// kernel's name; so has the parameter in adamw_all, which is fp32 else. What is not fp32 is rounded
// by the random bits of random_rounding.h: bits_low, bits_high, first. Where `rounded` is not null,
// the new parameter goes there as well, in bf16 and rounded to nearest. Source and target may be
// the same.
inline constexpr int kAdamElements = 4;
struct AdamW {
  long long count;
  int packed;
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float eps;
  float decay;
  float step_size;
  float inverse_root_correction2;
  float gradient_scale;
  unsigned bits_low;
  unsigned bits_high;
  unsigned first;
  const void* param;
  const void* exp_avg;
  const void* exp_avg_sq;
  const float* gradient;
  void* new_param;
  void* new_exp_avg;
  void* new_exp_avg_sq;
  void* rounded;
};

// Block b adds up elements [b, b + 1) * kSquaresOfBlock and leaves the sum in partials[b].
inline constexpr long long kSquaresOfBlock = 16384;
struct Squares {
  long long count;
  int packed;
  const float* values;
  double* partials;
};

// One block: total = the sum of the partials.
struct SumPartials {
  long long count;
  const double* partials;
  double* total;
};

}  // namespace hpctl::device
