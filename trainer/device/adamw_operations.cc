// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/adamw_operations.h"

namespace hpctl {

namespace {

// Words of 32 bits are the lower halves of int64: LibTorch has few operations on unsigned numbers.
constexpr int64_t kWord = 0xffffffff;

at::Tensor right(const at::Tensor& words, int64_t by) { return at::bitwise_right_shift(words, by); }

// As random_rounding.h. A factor above 2^31 is given as that minus 2^32, so that no product is
// larger than an int64.
at::Tensor mix32(at::Tensor x, int64_t extra) {
  x = x.bitwise_xor(right(x, 16));
  x = x.mul_(int64_t{0x7feb352d}).bitwise_and_(kWord);
  x = x.bitwise_xor(right(x, 15)).bitwise_xor_(extra);
  x = x.mul_(int64_t{0x846ca68b} - (int64_t{1} << 32)).bitwise_and_(kWord);
  return x.bitwise_xor(right(x, 16));
}

// `random`: the lower 16 bits of each word.
at::Tensor bf16_at_random(const at::Tensor& values, const at::Tensor& random) {
  at::Tensor bits = values.view(at::kInt).to(at::kLong).add_(random.bitwise_and(0xffff));
  bits = right(bits, 16).bitwise_and_(0xffff).masked_fill_(values.isnan(), 0x7fc0);
  return bits.to(at::kShort).view(at::kBFloat16);
}

void store(at::Tensor to, const at::Tensor& values, const at::Tensor& random) {
  to.copy_(to.scalar_type() == at::kFloat ? values : bf16_at_random(values, random));
}

}  // namespace

// adamw.cc, operation by operation.
void adamw_by_operations(const AdamStep& s, bool decayed, const RandomBits& bits,
                         const at::Tensor& gradient, const AdamTensors& from, AdamTensors to) {
  const at::Tensor g = gradient * s.gradient_scale;
  const at::Tensor m = from.exp_avg.to(at::kFloat) * s.beta1 + g * (1.0 - s.beta1);
  const at::Tensor v = from.exp_avg_sq.to(at::kFloat) * s.beta2 + g * (1.0 - s.beta2) * g;
  const at::Tensor denominator = v.sqrt() * s.inverse_root_correction2 + s.eps;
  const at::Tensor p =
      from.param.to(at::kFloat) * (decayed ? s.decay : 1.0) - m / denominator * s.step_size;
  at::Tensor of_moments;
  at::Tensor of_param;
  if (to.exp_avg.scalar_type() != at::kFloat) {
    at::Tensor place = at::arange(g.numel(), at::TensorOptions(at::kLong).device(g.device()));
    place = place.add_(int64_t{bits.first}).bitwise_and_(kWord);
    of_moments = mix32(place.bitwise_xor_(int64_t{bits.low}), bits.high);
    of_param = mix32(of_moments, 0x9e3779b9);
  }
  store(to.exp_avg, m, of_moments);
  store(to.exp_avg_sq, v, of_moments.defined() ? right(of_moments, 16) : of_moments);
  store(to.param, p, of_param);
}

}  // namespace hpctl
