// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/segments.h"

#include <utility>

namespace hpctl {

namespace {

// The residual stream passes by.
Segment branch(const char* name, DecoderPart part, Exchange after) {
  return {.name = name,
          .parameters = std::move(part.parameters),
          .after = after,
          .addend = part.addend,
          .run = [run = std::move(part.run)](const LayerCall& call, const Tensors& in) {
            Tensors out = run(call, {in.begin() + 1, in.end()});
            out.insert(out.begin(), in.front());
            return out;
          }};
}

Segment norm(const char* name, DecoderPart part) {
  return {.name = name,
          .parameters = std::move(part.parameters),
          .after = Exchange::kGather,
          .addend = std::nullopt,
          .run = std::move(part.run)};
}

}  // namespace

at::Tensor residual_stream(const Tensors& in) { return in.size() == 1 ? in[0] : in[0] + in[1]; }

std::vector<Segment> segments_of(DecoderLayer layer) {
  std::vector<Segment> segments;
  segments.push_back(norm("attention_norm", std::move(layer.attention_norm)));
  segments.push_back(branch("qkv", std::move(layer.qkv), Exchange::kKeysAndValues));
  segments.push_back(branch("attention", std::move(layer.attention), Exchange::kNone));
  segments.push_back(branch("attention_output", std::move(layer.attention_output), Exchange::kSum));
  segments.push_back(norm("mlp_norm", std::move(layer.mlp_norm)));
  segments.push_back(branch("mlp", std::move(layer.mlp), Exchange::kSum));
  segments.push_back(
      {.name = "mlp_residual",
       .parameters = {},
       .after = Exchange::kNone,
       .addend = std::nullopt,
       .run = [](const LayerCall&, const Tensors& in) { return Tensors{residual_stream(in)}; }});
  return segments;
}

}  // namespace hpctl
