// SPDX-License-Identifier: Apache-2.0
// Forward pass of the Llama-3 architecture and those of its kind (family.h): decoder layers of
// RMSNorm, causal grouped-query attention with rotary positions, and SwiGLU. Biases of queries,
// keys and values, and norms of each head's query and key, where the layout has them; the window is
// attention's.
#include "trainer/arch/model.h"

#include <array>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "trainer/arch/attention.h"
#include "trainer/arch/fused_rows.h"
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

// A layer's parameters by their names, in whatever order the layout has those that there are, and
// behind them those of adapters, the two of a matrix next to each other.
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

 private:
  std::array<int, kLayerParameters> slots_;
  std::array<int, kLayerParameters> adapters_;  // of A; B follows
};

class Llama : public Model {
 public:
  Llama(const ModelSpec& model, int64_t seq_len, at::ScalarType compute, double z_loss,
        at::Device device, const LoraSpec& lora);

  Tensor embed(const std::vector<Tensor>& parameters, const Tensor& tokens,
               const Documents& documents) const override;
  Tensor layer(const std::vector<Tensor>& parameters, const Tensor& x, const Documents& documents,
               Recomputed* recomputed) const override;
  Tensor logits(const std::vector<Tensor>& parameters, const Tensor& x) const override;

 private:
  Tensor rms_norm(const Tensor& x, const Tensor& weight, Recomputed* recomputed) const;

  ModelSpec model_;
  LayerSlots slots_;
  double lora_scale_;
  at::ScalarType compute_;
  at::ScalarType wide_;  // of norms and logits
  bool fused_;           // norms and SwiGLU by kernels
  CausalAttention attention_;
};

Llama::Llama(const ModelSpec& model, int64_t seq_len, at::ScalarType compute, double z_loss,
             at::Device device, const LoraSpec& lora)
    : Model(z_loss),
      model_(model),
      slots_(model_layout(model)[1], lora),
      lora_scale_(lora.on() ? lora.scale() : 0),
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

Tensor Llama::layer(const std::vector<Tensor>& parameters, const Tensor& x,
                    const Documents& documents, Recomputed* recomputed) const {
  const auto p = [&](size_t which) { return slots_.of(parameters, which); };
  const auto linear = [&](const Tensor& y, size_t weight, const Tensor& bias = {}) {
    const Tensor product = ops::linear(y, p(weight), bias);
    const auto [down, up] = slots_.adapter(parameters, weight);
    if (!down.defined()) return product;
    return product + ops::linear(ops::linear(y, down), up) * lora_scale_;
  };
  const Tensor a = rms_norm(x, p(kInputNorm), recomputed);
  // [B, T, heads, h]
  const auto heads = [&](LayerParameter weight, int64_t count) {
    return linear(a, weight, p(weight + 1)).view({x.size(0), x.size(1), count, model_.head_size()});
  };
  const auto normed = [&](const Tensor& y, LayerParameter norm) {
    const Tensor weight = p(norm);
    return weight.defined() ? rms_norm(y, weight, recomputed) : y;
  };
  const Tensor q = normed(heads(kQ, model_.heads), kQNorm);
  const Tensor k = normed(heads(kK, model_.kv_heads), kKNorm);
  const Tensor v = heads(kV, model_.kv_heads);
  const Tensor middle = x + linear(attention_(q, k, v, documents, recomputed), kO);

  const Tensor b = rms_norm(middle, p(kPostNorm), recomputed);
  const Tensor gate = linear(b, kGate);
  const Tensor up = linear(b, kUp);
  const Tensor hidden = run(recomputed, [=, this] {
    if (fused_) return std::vector<Tensor>{fused_swiglu(gate, up)};
    const Tensor active = ops::silu(gate);
    return std::vector<Tensor>{active, active * up};
  });
  return middle + linear(hidden, kDown);
}

Tensor Llama::logits(const std::vector<Tensor>& parameters, const Tensor& x) const {
  return ops::linear(rms_norm(x, parameters[kFinalNorm], nullptr), parameters[kOutput]).to(wide_);
}

}  // namespace

std::unique_ptr<Model> make_model(const ModelSpec& model, int64_t seq_len, at::ScalarType compute,
                                  double z_loss, at::Device device, const LoraSpec& lora) {
  return std::make_unique<Llama>(model, seq_len, compute, z_loss, device, lora);
}

}  // namespace hpctl::llama
