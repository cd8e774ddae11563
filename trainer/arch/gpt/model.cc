// SPDX-License-Identifier: Apache-2.0
// Forward pass of the GPT-2 architecture: learned positions added to the embedding; layers of
// LayerNorm, causal attention with as many key as query heads, LayerNorm and GELU in its tanh form
// (transformers' gelu_new, Megatron-LM's fused bias-GELU); biases everywhere but in the output
// projection; no dropout.
#include "trainer/arch/model.h"

#include "trainer/arch/attention.h"
#include "trainer/arch/ops.h"

namespace hpctl::gpt {

namespace {

using at::Tensor;

// Order of the parameters in the layout (architecture.cc); a bias follows its weight.
enum EmbedParameter { kTokens, kPositions };
enum LayerParameter { kAttnNorm = 0, kQkv = 2, kAttnOut = 4, kMlpNorm = 6, kUp = 8, kDown = 10 };
enum HeadParameter { kFinalNorm = 0, kOutput = 2 };

// x: [..., in]; the weight at p[at] is [in, out].
Tensor project(const std::vector<Tensor>& p, size_t at, const Tensor& x) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = p[at].size(1);
  return ops::addmm(p[at + 1], x.reshape({-1, x.size(-1)}), p[at]).view(shape);
}

class Gpt : public Model {
 public:
  Gpt(const ModelSpec& model, int64_t seq_len, at::ScalarType compute, double z_loss,
      at::Device device);

  Tensor embed(const std::vector<Tensor>& parameters, const Tensor& tokens,
               const Documents& documents) const override;
  Tensor layer(const std::vector<Tensor>& parameters, const Tensor& x, const Documents& documents,
               Recomputed* recomputed) const override;
  Tensor logits(const std::vector<Tensor>& parameters, const Tensor& x) const override;

 private:
  Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                    Recomputed* recomputed) const;
  // Norm, projections and attention: [B, T, D], before the output projection.
  Tensor attend(const std::vector<Tensor>& parameters, const Tensor& x, const Documents& documents,
                Recomputed* recomputed) const;

  ModelSpec model_;
  at::ScalarType wide_;  // of the logits
  CausalAttention attention_;
};

Gpt::Gpt(const ModelSpec& model, int64_t seq_len, at::ScalarType compute, double z_loss,
         at::Device device)
    : Model(z_loss),
      model_(model),
      wide_(wide_type(compute)),
      attention_(model, seq_len, compute, device) {}

Tensor Gpt::embed(const std::vector<Tensor>& parameters, const Tensor& tokens,
                  const Documents& documents) const {
  const Tensor& positions = parameters[kPositions];
  return at::embedding(parameters[kTokens], tokens) +
         (documents.empty() ? positions.narrow(0, 0, tokens.size(1))
                            : at::embedding(positions, documents.positions));
}

Tensor Gpt::layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                       Recomputed* recomputed) const {
  return run(recomputed, [=, this] {
    return std::vector<Tensor>{ops::layer_norm(x, weight, bias, model_.norm_eps)};
  });
}

Tensor Gpt::attend(const std::vector<Tensor>& p, const Tensor& x, const Documents& documents,
                   Recomputed* recomputed) const {
  const Tensor a = layer_norm(x, p[kAttnNorm], p[kAttnNorm + 1], recomputed);
  const std::vector<Tensor> qkv = project(p, kQkv, a).chunk(3, -1);
  const auto heads = [&](const Tensor& y) {
    return y.view({x.size(0), x.size(1), model_.heads, model_.dim / model_.heads});
  };
  return attention_(heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), documents, recomputed);
}

Tensor Gpt::layer(const std::vector<Tensor>& p, const Tensor& x, const Documents& documents,
                  Recomputed* recomputed) const {
  const Tensor middle = x + project(p, kAttnOut, attend(p, x, documents, recomputed));
  const Tensor b = layer_norm(middle, p[kMlpNorm], p[kMlpNorm + 1], recomputed);
  const Tensor up = project(p, kUp, b);
  const Tensor hidden = run(recomputed, [=] { return std::vector<Tensor>{ops::gelu(up)}; });
  return middle + project(p, kDown, hidden);
}

Tensor Gpt::logits(const std::vector<Tensor>& parameters, const Tensor& x) const {
  const Tensor normed = layer_norm(x, parameters[kFinalNorm], parameters[kFinalNorm + 1], nullptr);
  return ops::linear(normed, parameters[kOutput]).to(wide_);
}

}  // namespace

std::unique_ptr<Model> make_model(const ModelSpec& model, int64_t seq_len, at::ScalarType compute,
                                  double z_loss, at::Device device, const LoraSpec& lora) {
  HP_CHECK(!lora.on());
  return std::make_unique<Gpt>(model, seq_len, compute, z_loss, device);
}

}  // namespace hpctl::gpt
