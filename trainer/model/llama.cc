// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/llama.h"

#include <cmath>
#include <limits>

#include "trainer/model/rotary.h"

namespace hpctl {

namespace {

using at::Tensor;

// Order of a layer's parameters in llama_layout().
enum LayerParameter { kInputNorm, kQ, kK, kV, kO, kPostNorm, kGate, kUp, kDown };
enum HeadParameter { kFinalNorm, kOutput };

}  // namespace

Llama::Llama(const ModelSpec& model, int64_t seq_len, at::ScalarType compute, double z_loss)
    : model_(model),
      compute_(compute),
      wide_(compute == at::kDouble ? at::kDouble : at::kFloat),
      z_loss_(z_loss),
      head_dim_(model.dim / model.heads) {
  const at::NoGradGuard no_grad;
  // Angles in fp64, since fp32 loses whole turns at long positions.
  const Tensor frequency = at::tensor(rotary_frequencies(model), at::kDouble);
  const Tensor half = at::outer(at::arange(seq_len, at::kDouble), frequency);
  const Tensor angle = at::cat({half, half}, 1).unsqueeze(1);
  cos_ = angle.cos().to(wide_);
  sin_ = angle.sin().to(wide_);
  const int64_t group = model.heads / model.kv_heads;
  mask_ = at::full({seq_len, seq_len}, -std::numeric_limits<float>::infinity(), wide_)
              .triu(1)
              .repeat({group, 1});
}

Tensor Llama::embed(const std::vector<Tensor>& parameters, const Tensor& tokens) const {
  return at::embedding(parameters[0], tokens);
}

Tensor Llama::rms_norm(const Tensor& x, const Tensor& weight) const {
  const Tensor wide = x.to(wide_);
  const Tensor inverse_rms = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + model_.norm_eps);
  return (wide * inverse_rms).to(compute_) * weight;
}

// x: [B, T, heads, h]
Tensor Llama::rotate(const Tensor& x) const {
  const Tensor wide = x.to(wide_);
  const std::vector<Tensor> halves = wide.chunk(2, -1);
  const Tensor turned = at::cat({-halves[1], halves[0]}, -1);
  return (wide * cos_ + turned * sin_).to(compute_);
}

// q: [B, T, K, G, h]; k, v: [B, T, K, h]. The G query heads that share a key head are stacked along
// the rows of one product, so keys and values are not copied per query head.
Tensor Llama::attention(const Tensor& q, const Tensor& k, const Tensor& v) const {
  const int64_t batch = q.size(0);
  const int64_t tokens = q.size(1);
  const int64_t kv_heads = q.size(2);
  const int64_t group = q.size(3);
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  const Tensor rows =
      (q * scale).permute({0, 2, 3, 1, 4}).reshape({batch, kv_heads, group * tokens, head_dim_});
  const Tensor scores = at::matmul(rows, k.permute({0, 2, 3, 1}));
  const Tensor weights = at::softmax(scores + mask_, -1, wide_).to(compute_);
  const Tensor mixed = at::matmul(weights, v.transpose(1, 2));
  return mixed.view({batch, kv_heads, group, tokens, head_dim_})
      .permute({0, 3, 1, 2, 4})
      .reshape({batch, tokens, kv_heads * group * head_dim_});
}

Tensor Llama::layer(const std::vector<Tensor>& p, const Tensor& x) const {
  const int64_t batch = x.size(0);
  const int64_t tokens = x.size(1);
  const int64_t kv_heads = model_.kv_heads;
  const int64_t group = model_.heads / kv_heads;

  const Tensor a = rms_norm(x, p[kInputNorm]);
  const Tensor q = rotate(at::linear(a, p[kQ]).view({batch, tokens, model_.heads, head_dim_}));
  const Tensor k = rotate(at::linear(a, p[kK]).view({batch, tokens, kv_heads, head_dim_}));
  const Tensor v = at::linear(a, p[kV]).view({batch, tokens, kv_heads, head_dim_});
  const Tensor mixed = attention(q.view({batch, tokens, kv_heads, group, head_dim_}), k, v);
  const Tensor middle = x + at::linear(mixed, p[kO]);

  const Tensor b = rms_norm(middle, p[kPostNorm]);
  const Tensor hidden = at::silu(at::linear(b, p[kGate])) * at::linear(b, p[kUp]);
  return middle + at::linear(hidden, p[kDown]);
}

Tensor Llama::logits(const std::vector<Tensor>& parameters, const Tensor& x) const {
  return at::linear(rms_norm(x, parameters[kFinalNorm]), parameters[kOutput]).to(wide_);
}

Llama::Loss Llama::loss(const Tensor& logits, const Tensor& targets) const {
  const Tensor rows = logits.view({-1, logits.size(-1)});
  const Tensor entropy =
      at::nll_loss(at::log_softmax(rows, -1), targets.reshape({-1}), {}, at::Reduction::Sum);
  if (z_loss_ == 0) return {entropy, entropy};
  return {entropy, entropy + z_loss_ * at::logsumexp(rows, -1).square().sum()};
}

}  // namespace hpctl
