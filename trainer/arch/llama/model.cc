// SPDX-License-Identifier: Apache-2.0
// Forward pass of the Llama-3 architecture: decoder layers of RMSNorm, causal grouped-query
// attention with rotary positions, and SwiGLU. No biases. Rotary pairs are (i, i + head_dim / 2),
// as in Hugging Face checkpoints.
#include "trainer/arch/model.h"

#include "trainer/arch/attention.h"
#include "trainer/arch/ops.h"
#include "trainer/arch/rotary.h"

namespace hpctl::llama {

namespace {

using at::Tensor;

// Order of a layer's parameters in the layout (architecture.cc).
enum LayerParameter { kInputNorm, kQ, kK, kV, kO, kPostNorm, kGate, kUp, kDown };
enum HeadParameter { kFinalNorm, kOutput };

class Llama : public Model {
 public:
  Llama(const ModelSpec& model, int64_t seq_len, at::ScalarType compute, double z_loss,
        at::Device device);

  Tensor embed(const std::vector<Tensor>& parameters, const Tensor& tokens,
               const Documents& documents) const override;
  Tensor layer(const std::vector<Tensor>& parameters, const Tensor& x, const Documents& documents,
               Recomputed* recomputed) const override;
  Tensor logits(const std::vector<Tensor>& parameters, const Tensor& x) const override;

 private:
  Tensor rms_norm(const Tensor& x, const Tensor& weight, Recomputed* recomputed) const;
  Tensor rotate(const Tensor& x, const Documents& documents) const;

  ModelSpec model_;
  at::ScalarType compute_;
  at::ScalarType wide_;  // of norms, rotary positions and logits
  CausalAttention attention_;
  Tensor cos_;  // [T, 1, head_dim]
  Tensor sin_;  // [T, 1, head_dim]
};

Llama::Llama(const ModelSpec& model, int64_t seq_len, at::ScalarType compute, double z_loss,
             at::Device device)
    : Model(z_loss),
      model_(model),
      compute_(compute),
      wide_(wide_type(compute)),
      attention_(model, seq_len, compute, device) {
  const c10::NoGradGuard no_grad;
  // Angles in fp64, since fp32 loses whole turns at long positions.
  const Tensor frequency = at::tensor(rotary_frequencies(model), at::kDouble);
  const Tensor half = at::outer(at::arange(seq_len, at::kDouble), frequency);
  const Tensor angle = at::cat({half, half}, 1).unsqueeze(1);
  cos_ = angle.cos().to(wide_).to(device);
  sin_ = angle.sin().to(wide_).to(device);
}

Tensor Llama::embed(const std::vector<Tensor>& parameters, const Tensor& tokens,
                    const Documents&) const {
  return at::embedding(parameters[0], tokens);
}

Tensor Llama::rms_norm(const Tensor& x, const Tensor& weight, Recomputed* recomputed) const {
  return run(recomputed, [=, this] {
    const Tensor wide = x.to(wide_);
    const Tensor inverse_rms =
        at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + model_.norm_eps);
    const Tensor normal = (wide * inverse_rms).to(compute_);
    std::vector<Tensor> results = {normal, normal * weight};
    if (!wide.is_same(x)) results.insert(results.begin(), wide);
    return results;
  });
}

// x: [B, T, heads, head_dim]
Tensor Llama::rotate(const Tensor& x, const Documents& documents) const {
  const auto at_positions = [&](const Tensor& table) {
    return documents.empty() ? table
                             : at::embedding(table.squeeze(1), documents.positions).unsqueeze(2);
  };
  const Tensor wide = x.to(wide_);
  const std::vector<Tensor> halves = wide.chunk(2, -1);
  const Tensor turned = at::cat({-halves[1], halves[0]}, -1);
  return (wide * at_positions(cos_) + turned * at_positions(sin_)).to(compute_);
}

Tensor Llama::layer(const std::vector<Tensor>& p, const Tensor& x, const Documents& documents,
                    Recomputed* recomputed) const {
  const auto heads = [&](const Tensor& y, int64_t count) {
    return y.view({x.size(0), x.size(1), count, model_.dim / model_.heads});
  };
  const Tensor a = rms_norm(x, p[kInputNorm], recomputed);
  const Tensor q = rotate(heads(ops::linear(a, p[kQ]), model_.heads), documents);
  const Tensor k = rotate(heads(ops::linear(a, p[kK]), model_.kv_heads), documents);
  const Tensor v = heads(ops::linear(a, p[kV]), model_.kv_heads);
  const Tensor middle = x + ops::linear(attention_(q, k, v, documents, recomputed), p[kO]);

  const Tensor b = rms_norm(middle, p[kPostNorm], recomputed);
  const Tensor gate = ops::linear(b, p[kGate]);
  const Tensor up = ops::linear(b, p[kUp]);
  const Tensor hidden = run(recomputed, [=] {
    const Tensor active = ops::silu(gate);
    return std::vector<Tensor>{active, active * up};
  });
  return middle + ops::linear(hidden, p[kDown]);
}

Tensor Llama::logits(const std::vector<Tensor>& parameters, const Tensor& x) const {
  return ops::linear(rms_norm(x, parameters[kFinalNorm], nullptr), parameters[kOutput]).to(wide_);
}

}  // namespace

std::unique_ptr<Model> make_model(const ModelSpec& model, int64_t seq_len, at::ScalarType compute,
                                  double z_loss, at::Device device) {
  return std::make_unique<Llama>(model, seq_len, compute, z_loss, device);
}

}  // namespace hpctl::llama
