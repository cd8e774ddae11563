// SPDX-License-Identifier: Apache-2.0
// Forward pass of the Llama-3 architecture and similar ones (family.h): decoder layers of RMSNorm,
// causal grouped-query attention with rotary positions, and SwiGLU. Biases of queries, keys and
// values, and norms of each head's query and key, apply if the layout has them; attention applies
// the window.
#include "trainer/arch/model.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "trainer/arch/attention.h"
#include "trainer/arch/fused_ops.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/ops.h"
#include "trainer/arch/registry.h"

namespace hpctl::llama {

namespace {

using at::Tensor;

enum HeadParameter { kFinalNorm, kOutput };
// A bias follows the weight of its projection.
enum LayerParameter {
  kInputNorm,
  kQ,
  kQBias,
  kK,
  kKBias,
  kV,
  kVBias,
  kO,
  kQNorm,
  kKNorm,
  kPostNorm,
  kGate,
  kUp,
  kDown,
  kLayerParameters
};
constexpr std::array<std::string_view, kLayerParameters> kNames = {
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.q_proj.bias",
    "self_attn.k_proj.weight",
    "self_attn.k_proj.bias",
    "self_attn.v_proj.weight",
    "self_attn.v_proj.bias",
    "self_attn.o_proj.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight"};

bool has_bias(LayerParameter weight) { return weight == kQ || weight == kK || weight == kV; }

// A layer's parameters by their names, in any order of the layout, followed by the parameters of
// adapters, the two of a matrix next to each other.
class LayerSlots {
 public:
  LayerSlots(const Block& layer, const LoraSpec& lora) {
    slots_.fill(-1);
    adapters_.fill(-1);
    size_t known = 0;
    auto next = static_cast<int>(layer.tensors.size());
    for (size_t i = 0; i < layer.tensors.size(); ++i) {
      for (size_t name = 0; name < kNames.size(); ++name) {
        if (!layer.tensors[i].name.ends_with(kNames[name])) continue;
        slots_[name] = static_cast<int>(i);
        ++known;
        if (!lora.on() || !is_lora_target(lora, layer.tensors[i].name)) continue;
        adapters_[name] = next;
        next += 2;
      }
    }
    HP_CHECK(known == layer.tensors.size());
  }

  // Undefined where the architecture has none.
  Tensor of(const std::vector<Tensor>& parameters, size_t which) const {
    return slots_[which] < 0 ? Tensor() : parameters[static_cast<size_t>(slots_[which])];
  }
  // A and B of a matrix; undefined where it has no adapter.
  std::pair<Tensor, Tensor> adapter(const std::vector<Tensor>& parameters, size_t which) const {
    if (adapters_[which] < 0) return {};
    const auto a = static_cast<size_t>(adapters_[which]);
    return {parameters.at(a), parameters.at(a + 1)};
  }
  // Whether any of these has an adapter.
  bool adapts_any(std::initializer_list<LayerParameter> matrices) const {
    return std::any_of(matrices.begin(), matrices.end(),
                       [this](LayerParameter matrix) { return adapters_[matrix] >= 0; });
  }
  // Where these and their adapters are, as far as there are any.
  std::vector<size_t> indices(std::initializer_list<size_t> which) const {
    std::vector<size_t> found;
    for (const size_t name : which) {
      if (slots_[name] >= 0) found.push_back(static_cast<size_t>(slots_[name]));
      if (adapters_[name] < 0) continue;
      const auto a = static_cast<size_t>(adapters_[name]);
      found.insert(found.end(), {a, a + 1});
    }
    return found;
  }

 private:
  std::array<int, kLayerParameters> slots_;
  std::array<int, kLayerParameters> adapters_;  // of A; B follows
};

class Llama : public Model {
 public:
  Llama(const TrainSpec& train, at::ScalarType compute, at::Device device);

  Tensor embed(const std::vector<Tensor>& parameters, const Tensor& tokens,
               const Documents& documents) const override;
  const std::vector<Segment>& segments() const override { return segments_; }
  Tensor final_norm(const std::vector<Tensor>& parameters, const Tensor& x) const override;
  Tensor project(const std::vector<Tensor>& parameters, const Tensor& normed) const override;
  AttentionBackend attention_by() const override { return attention_.by(); }

 private:
  std::vector<Segment> make_segments() const;
  Tensor rms_norm(const Tensor& x, const Tensor& weight, Recomputed* recomputed) const;
  DecoderPart norm(LayerParameter weight) const;
  // With bias and adapter, where the layer has them.
  Tensor linear(const LayerCall& call, const Tensor& x, size_t weight,
                const Tensor& bias = {}) const;
  // For projections of the same x, with biases and adapters.
  Tensors linears(const LayerCall& call, const Tensor& x,
                  std::initializer_list<LayerParameter> weights) const;
  Tensors qkv(const LayerCall& call, const Tensor& a) const;
  Tensor mlp(const LayerCall& call, const Tensor& b) const;

  ModelSpec model_;
  LayerSlots slots_;
  double lora_scale_;
  at::ScalarType compute_;
  at::ScalarType wide_;  // of norms
  bool fused_;           // norms and SwiGLU by kernels
  CausalAttention attention_;
  std::vector<Segment> segments_;
};

Llama::Llama(const TrainSpec& train, at::ScalarType compute, at::Device device)
    : Model(train.loss.z_loss),
      model_(train.model),
      slots_(model_layout(model_)[1], train.lora),
      lora_scale_(train.lora.on() ? train.lora.scale() : 0),
      compute_(compute),
      wide_(wide_type(compute)),
      fused_(has_fused_rows(device, compute)),
      attention_(model_, train.data.seq_len, compute, device, train.gpu.attention),
      segments_(make_segments()) {}

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

std::vector<Segment> Llama::make_segments() const {
  return segments_of(
      {.attention_norm = norm(kInputNorm),
       .qkv = {slots_.indices({kQ, kQBias, kK, kKBias, kV, kVBias, kQNorm, kKNorm}),
               [this](const LayerCall& call, const Tensors& in) { return qkv(call, in[0]); }},
       .attention = {{},
                     [this](const LayerCall& call, const Tensors& in) {
                       return Tensors{
                           attention_(in[0], in[1], in[2], call.documents, call.recomputed)};
                     }},
       .attention_output = {slots_.indices({kO}),
                            [this](const LayerCall& call, const Tensors& in) {
                              return Tensors{linear(call, in[0], kO)};
                            }},
       .mlp_norm = norm(kPostNorm),
       .mlp = {slots_.indices({kGate, kUp, kDown}),
               [this](const LayerCall& call, const Tensors& in) {
                 return Tensors{mlp(call, in[0])};
               }}});
}

DecoderPart Llama::norm(LayerParameter weight) const {
  return {slots_.indices({weight}), [this, weight](const LayerCall& call, const Tensors& in) {
            const Tensor factors = slots_.of(call.parameters, weight);
            if (fused_) {
              const Tensor addend = in.size() == 2 ? in[1] : Tensor();
              const ResidualNorm both =
                  fused_residual_rms_norm(in[0], addend, factors, model_.norm_eps);
              // Where norms are computed again, the residual stream stays.
              if (call.recomputed != nullptr) {
                call.recomputed->add(both.normed, [x = both.residual, factors, this] {
                  return Tensors{fused_rms_norm(x, factors, model_.norm_eps)};
                });
              }
              return Tensors{both.residual, both.normed};
            }
            const Tensor x = residual_stream(in);
            return Tensors{x, rms_norm(x, factors, call.recomputed)};
          }};
}

Tensor Llama::linear(const LayerCall& call, const Tensor& x, size_t weight,
                     const Tensor& bias) const {
  const Tensor product = ops::linear(x, slots_.of(call.parameters, weight), bias);
  const auto [down, up] = slots_.adapter(call.parameters, weight);
  if (!down.defined()) return product;
  return product + ops::linear(ops::linear(x, down), up) * lora_scale_;
}

Tensors Llama::linears(const LayerCall& call, const Tensor& x,
                       std::initializer_list<LayerParameter> weights) const {
  const auto bias_of = [&](LayerParameter weight) {
    return has_bias(weight) ? slots_.of(call.parameters, weight + 1) : Tensor();
  };
  if (slots_.adapts_any(weights)) {
    Tensors each;
    for (const LayerParameter weight : weights) {
      each.push_back(linear(call, x, weight, bias_of(weight)));
    }
    return each;
  }
  Tensors factors;
  Tensors biases;
  for (const LayerParameter weight : weights) {
    factors.push_back(slots_.of(call.parameters, weight));
    biases.push_back(bias_of(weight));
  }
  return ops::linears(x, factors, biases);
}

Tensors Llama::qkv(const LayerCall& call, const Tensor& a) const {
  Tensors parts = linears(call, a, {kQ, kK, kV});
  for (Tensor& part : parts) {
    part = part.view({a.size(0), a.size(1), -1, model_.head_size()});  // [B, T, heads, h]
  }
  const auto normed = [&](const Tensor& y, LayerParameter norm) {
    const Tensor weight = slots_.of(call.parameters, norm);
    return weight.defined() ? rms_norm(y, weight, call.recomputed) : y;
  };
  // Values are kept for the backward pass. As columns of one array they would keep all of it.
  return {normed(parts[0], kQNorm), normed(parts[1], kKNorm), parts[2].contiguous()};
}

Tensor Llama::mlp(const LayerCall& call, const Tensor& b) const {
  const Tensors both = linears(call, b, {kGate, kUp});
  const Tensor hidden = run(call.recomputed, [gate = both[0], up = both[1], this] {
    if (fused_) return std::vector<Tensor>{fused_swiglu(gate, up)};
    const Tensor active = ops::silu(gate);
    return std::vector<Tensor>{active, active * up};
  });
  return linear(call, hidden, kDown);
}

Tensor Llama::final_norm(const std::vector<Tensor>& parameters, const Tensor& x) const {
  return rms_norm(x, parameters[kFinalNorm], nullptr);
}

Tensor Llama::project(const std::vector<Tensor>& parameters, const Tensor& normed) const {
  return ops::linear(normed, parameters[kOutput]);
}

}  // namespace

std::unique_ptr<Model> make_model(const TrainSpec& train, at::ScalarType compute,
                                  at::Device device) {
  return std::make_unique<Llama>(train, compute, device);
}

}  // namespace hpctl::llama
