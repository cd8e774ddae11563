// SPDX-License-Identifier: Apache-2.0
// The same mathematics as the forward passes in trainer/arch, written the plain way: fp64, one
// graph, parameters as separate leaves by name, key and value heads repeated. What sharding,
// cutting the graph, stacking heads and freeing buffers must not change.
#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "common/job/job_spec.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl::testing {

using ParameterMap = std::map<std::string, at::Tensor>;

inline at::Tensor reference_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x / at::sqrt(at::mean(x * x, -1, true) + eps) * weight;
}

// x: [B, heads, T, h]
inline at::Tensor reference_rope(const at::Tensor& x, double theta) {
  const int64_t tokens = x.size(2);
  const int64_t h = x.size(3);
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
  const at::Tensor position = at::arange(tokens, at::kDouble);
  for (int64_t i = 0; i < h / 2; ++i) {
    const at::Tensor angle =
        position * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(h));
    const at::Tensor a = x.select(3, i);
    const at::Tensor b = x.select(3, i + h / 2);
    first.push_back(a * angle.cos() - b * angle.sin());
    second.push_back(b * angle.cos() + a * angle.sin());
  }
  return at::cat({at::stack(first, 3), at::stack(second, 3)}, 3);
}

inline at::Tensor reference_layer_norm(const at::Tensor& x, const ParameterMap& p,
                                       const std::string& name, double eps) {
  const at::Tensor centred = x - at::mean(x, -1, true);
  const at::Tensor deviation = at::sqrt(at::mean(centred * centred, -1, true) + eps);
  return centred / deviation * p.at(name + ".weight") + p.at(name + ".bias");
}

// Logits [B, T, vocab] of arch gpt.
inline at::Tensor reference_gpt_logits(const ModelSpec& m, const ParameterMap& p,
                                       const at::Tensor& tokens) {
  const int64_t batch = tokens.size(0);
  const int64_t length = tokens.size(1);
  const int64_t h = m.dim / m.heads;
  at::Tensor x = p.at("transformer.wte.weight").index_select(0, tokens.reshape({-1}));
  x = x.view({batch, length, m.dim}) +
      p.at("transformer.wpe.weight").index_select(0, at::arange(length, at::kLong));
  const at::Tensor future = at::ones({length, length}, at::kBool).triu(1);
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    const std::string at_layer = "transformer.h." + std::to_string(layer) + ".";
    const auto project = [&](const at::Tensor& y, const char* name) {
      return at::matmul(y, p.at(at_layer + name + ".weight")) + p.at(at_layer + name + ".bias");
    };
    const at::Tensor qkv =
        project(reference_layer_norm(x, p, at_layer + "ln_1", m.norm_eps), "attn.c_attn");
    const auto heads = [&](int64_t part) {
      const at::Tensor columns = qkv.slice(2, part * m.dim, (part + 1) * m.dim);
      return columns.reshape({batch, length, m.heads, h}).transpose(1, 2);
    };
    at::Tensor scores =
        at::matmul(heads(0), heads(1).transpose(2, 3)) / std::sqrt(static_cast<double>(h));
    scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity());
    const at::Tensor mixed = at::matmul(at::softmax(scores, -1), heads(2)).transpose(1, 2);
    x = x + project(mixed.reshape({batch, length, m.dim}), "attn.c_proj");
    const at::Tensor up =
        project(reference_layer_norm(x, p, at_layer + "ln_2", m.norm_eps), "mlp.c_fc");
    const at::Tensor inner = 0.7978845608028654 * (up + 0.044715 * up * up * up);  // sqrt(2 / pi)
    x = x + project(0.5 * up * (1 + at::tanh(inner)), "mlp.c_proj");
  }
  x = reference_layer_norm(x, p, "transformer.ln_f", m.norm_eps);
  const char* output = m.tied_embeddings ? "transformer.wte.weight" : "lm_head.weight";
  return at::matmul(x, p.at(output).t());
}

// The same of arch llama, qwen2, qwen3 and mistral.
inline at::Tensor reference_llama_logits(const ModelSpec& m, const ParameterMap& p,
                                         const at::Tensor& tokens) {
  const int64_t batch = tokens.size(0);
  const int64_t length = tokens.size(1);
  const int64_t h = m.head_dim > 0 ? m.head_dim : m.dim / m.heads;
  at::Tensor x = p.at("model.embed_tokens.weight").index_select(0, tokens.reshape({-1}));
  x = x.view({batch, length, m.dim});
  const at::Tensor position = at::arange(length, at::kLong);
  const at::Tensor distance = position.unsqueeze(1) - position;
  const at::Tensor hidden =
      distance.lt(0).logical_or(distance.ge(m.sliding_window > 0 ? m.sliding_window : length));
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    const std::string at_layer = "model.layers." + std::to_string(layer) + ".";
    const auto weight = [&](const char* name) { return p.at(at_layer + name + ".weight"); };
    const auto heads = [&](const at::Tensor& y, const char* name, int64_t count) {
      at::Tensor product = at::matmul(y, weight(name).t());
      if (m.arch == Arch::qwen2) product = product + p.at(at_layer + name + ".bias");
      return product.view({batch, length, count, h}).transpose(1, 2);
    };
    const auto turned = [&](const at::Tensor& y, const char* norm) {
      const bool normed = m.arch == Arch::qwen3;
      return reference_rope(normed ? reference_norm(y, weight(norm), m.norm_eps) : y, m.rope_theta);
    };
    const at::Tensor a = reference_norm(x, weight("input_layernorm"), m.norm_eps);
    const at::Tensor q = turned(heads(a, "self_attn.q_proj", m.heads), "self_attn.q_norm");
    at::Tensor k = turned(heads(a, "self_attn.k_proj", m.kv_heads), "self_attn.k_norm");
    at::Tensor v = heads(a, "self_attn.v_proj", m.kv_heads);
    k = k.repeat_interleave(m.heads / m.kv_heads, 1);
    v = v.repeat_interleave(m.heads / m.kv_heads, 1);
    at::Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(h));
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    const at::Tensor mixed = at::matmul(at::softmax(scores, -1), v).transpose(1, 2);
    x = x + at::matmul(mixed.reshape({batch, length, m.heads * h}), weight("self_attn.o_proj").t());
    const at::Tensor b = reference_norm(x, weight("post_attention_layernorm"), m.norm_eps);
    const at::Tensor gate = at::matmul(b, weight("mlp.gate_proj").t());
    const at::Tensor up = at::matmul(b, weight("mlp.up_proj").t());
    x = x + at::matmul(gate * at::sigmoid(gate) * up, weight("mlp.down_proj").t());
  }
  x = reference_norm(x, p.at("model.norm.weight"), m.norm_eps);
  const char* output = m.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  return at::matmul(x, p.at(output).t());
}

// Mean cross entropy in fp64 over the targets that are not -100.
inline at::Tensor reference_loss(const ModelSpec& m, const ParameterMap& p,
                                 const at::Tensor& tokens, const at::Tensor& targets) {
  const at::Tensor logits = (m.arch == Arch::gpt ? reference_gpt_logits(m, p, tokens)
                                                 : reference_llama_logits(m, p, tokens))
                                .view({-1, m.vocab});
  const at::Tensor labels = targets.reshape({-1});
  const at::Tensor chosen = logits.gather(1, labels.clamp_min(0).unsqueeze(1)).squeeze(1);
  return (at::logsumexp(logits, {1}) - chosen).masked_select(labels.ge(0)).mean();
}

}  // namespace hpctl::testing
