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
Tensor linear(const std::vector<Tensor>& p, size_t at, const Tensor& x, const Tensor& bias) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = p[at].size(1);
  return ops::addmm(bias, x.reshape({-1, x.size(-1)}), p[at]).view(shape);
}

Tensor linear(const std::vector<Tensor>& p, size_t at, const Tensor& x) {
  return linear(p, at, x, p[at + 1]);
}

// The last projection of a branch: its bias is added after the sum over the parts of a layer.
Tensor linear_of_branch(const LayerCall& call, size_t at, const Tensor& x) {
  return linear(call.parameters, at, x, call.divided ? Tensor() : call.parameters[at + 1]);
}

class Gpt : public Model {
 public:
  Gpt(const TrainSpec& train, at::ScalarType compute, at::Device device);

  Tensor embed(const std::vector<Tensor>& parameters, const Tensor& tokens,
               const Documents& documents) const override;
  const std::vector<Segment>& segments() const override { return segments_; }
  Tensor final_norm(const std::vector<Tensor>& parameters, const Tensor& x) const override;
  Tensor project(const std::vector<Tensor>& parameters, const Tensor& normed) const override;
  Tensor with_positions(const std::vector<Tensor>& parameters, const Tensor& x,
                        const Tensor& positions) const override;
  AttentionBackend attention_by() const override { return attention_.by(); }

 private:
  Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                    Recomputed* recomputed) const;
  std::vector<Segment> make_segments() const;
  DecoderPart norm(LayerParameter weight) const;
  Tensors qkv(const LayerCall& call, const Tensor& a) const;

  ModelSpec model_;
  CausalAttention attention_;
  std::vector<Segment> segments_;
};

Gpt::Gpt(const TrainSpec& train, at::ScalarType compute, at::Device device)
    : Model(train.loss.z_loss),
      model_(train.model),
      attention_(model_, train.data.seq_len, compute, device, train.gpu.attention),
      segments_(make_segments()) {}

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

std::vector<Segment> Gpt::make_segments() const {
  return segments_of(
      {.attention_norm = norm(kAttnNorm),
       .qkv = {{kQkv, kQkv + 1},
               [this](const LayerCall& call, const Tensors& in) { return qkv(call, in[0]); }},
       .attention = {{},
                     [this](const LayerCall& call, const Tensors& in) {
                       return Tensors{
                           attention_(in[0], in[1], in[2], call.documents, call.recomputed)};
                     }},
       .attention_output = {{kAttnOut, kAttnOut + 1},
                            [](const LayerCall& call, const Tensors& in) {
                              return Tensors{linear_of_branch(call, kAttnOut, in[0])};
                            },
                            kAttnOut + 1},
       .mlp_norm = norm(kMlpNorm),
       .mlp = {{kUp, kUp + 1, kDown, kDown + 1},
               [](const LayerCall& call, const Tensors& in) {
                 const Tensor up = linear(call.parameters, kUp, in[0]);
                 const Tensor hidden =
                     run(call.recomputed, [=] { return std::vector<Tensor>{ops::gelu(up)}; });
                 return Tensors{linear_of_branch(call, kDown, hidden)};
               },
               kDown + 1}});
}

DecoderPart Gpt::norm(LayerParameter weight) const {
  return {{weight, weight + 1U}, [this, weight](const LayerCall& call, const Tensors& in) {
            const Tensor x = residual_stream(in);
            return Tensors{x, layer_norm(x, call.parameters[weight], call.parameters[weight + 1],
                                         call.recomputed)};
          }};
}

Tensors Gpt::qkv(const LayerCall& call, const Tensor& a) const {
  Tensors parts = linear(call.parameters, kQkv, a).chunk(3, -1);
  for (Tensor& part : parts) {
    part = part.view({a.size(0), a.size(1), -1, model_.head_size()});
  }
  return parts;
}

Tensor Gpt::final_norm(const std::vector<Tensor>& parameters, const Tensor& x) const {
  return layer_norm(x, parameters[kFinalNorm], parameters[kFinalNorm + 1], nullptr);
}

Tensor Gpt::project(const std::vector<Tensor>& parameters, const Tensor& normed) const {
  return ops::linear(normed, parameters[kOutput]);
}

Tensor Gpt::with_positions(const std::vector<Tensor>& parameters, const Tensor& x,
                           const Tensor& positions) const {
  return x + at::embedding(parameters[kPositions], positions);
}

}  // namespace

std::unique_ptr<Model> make_model(const TrainSpec& train, at::ScalarType compute,
                                  at::Device device) {
  HP_CHECK(!train.lora.on());
  return std::make_unique<Gpt>(train, compute, device);
}

}  // namespace hpctl::gpt
