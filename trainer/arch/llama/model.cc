// SPDX-License-Identifier: Apache-2.0
// Forward pass of the Llama-3 architecture: decoder layers of RMSNorm, causal grouped-query
// attention with rotary positions, and SwiGLU. No biases.
#include "trainer/arch/model.h"

#include "trainer/arch/attention.h"
#include "trainer/arch/fused_rows.h"
#include "trainer/arch/ops.h"

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

  ModelSpec model_;
  at::ScalarType compute_;
  at::ScalarType wide_;  // of norms and logits
  bool fused_;           // norms and SwiGLU by kernels
  CausalAttention attention_;
};

Llama::Llama(const ModelSpec& model, int64_t seq_len, at::ScalarType compute, double z_loss,
             at::Device device)
    : Model(z_loss),
      model_(model),
      compute_(compute),
      wide_(wide_type(compute)),
      fused_(device.is_cpu()),
      attention_(model, seq_len, compute, device) {}

Tensor Llama::embed(const std::vector<Tensor>& parameters, const Tensor& tokens,
                    const Documents&) const {
  return at::embedding(parameters[0], tokens);
}

Tensor Llama::rms_norm(const Tensor& x, const Tensor& weight, Recomputed* recomputed) const {
  return run(recomputed, [=, this] {
    if (fused_) return std::vector<Tensor>{fused_rms_norm(x, weight, model_.norm_eps)};
    const Tensor wide = x.to(wide_);
    const Tensor inverse_rms =
        at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + model_.norm_eps);
    const Tensor normal = (wide * inverse_rms).to(compute_);
    std::vector<Tensor> results = {normal, normal * weight};
    if (!wide.is_same(x)) results.insert(results.begin(), wide);
    return results;
  });
}

Tensor Llama::layer(const std::vector<Tensor>& p, const Tensor& x, const Documents& documents,
                    Recomputed* recomputed) const {
  const auto heads = [&](const Tensor& y, int64_t count) {
    return y.view({x.size(0), x.size(1), count, model_.dim / model_.heads});
  };
  const Tensor a = rms_norm(x, p[kInputNorm], recomputed);
  const Tensor q = heads(ops::linear(a, p[kQ]), model_.heads);
  const Tensor k = heads(ops::linear(a, p[kK]), model_.kv_heads);
  const Tensor v = heads(ops::linear(a, p[kV]), model_.kv_heads);
  const Tensor middle = x + ops::linear(attention_(q, k, v, documents, recomputed), p[kO]);

  const Tensor b = rms_norm(middle, p[kPostNorm], recomputed);
  const Tensor gate = ops::linear(b, p[kGate]);
  const Tensor up = ops::linear(b, p[kUp]);
  const Tensor hidden = run(recomputed, [=, this] {
    if (fused_) return std::vector<Tensor>{fused_swiglu(gate, up)};
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
