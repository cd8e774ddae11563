// SPDX-License-Identifier: Apache-2.0
// A layer as a short list of segments, between which the engine may communicate.
//
// A segment is a pure function of tensors and of its own parameters of the layer. No collective
// runs inside one, and so none inside a node of autograd. If a dimension of the mesh must
// communicate, the engine cuts the graph between two segments (a detached leaf for each tensor, one
// backward call for each segment), as it does between layers. Without communication a layer is one
// graph, and cutting it changes no bit of its gradients.
//
// The first tensor between two segments is the residual stream [B, T, D], which segments of a
// branch pass on. A decoder layer has these, each beside what its output needs before the next:
//
//   attention_norm    x             -> x, a            gather of a: its columns need the whole
//                                                      sequence (sequence parallelism)
//   qkv               x, a          -> x, q, k, v      exchange of k and v: a query needs those of
//                                                      other parts of its sequence (context)
//   attention         x, q, k, v    -> x, mixed
//   attention_output  x, mixed      -> x, o            sum of o over parts of the layer (tensor),
//                                                      or of that the part of the sequence
//   mlp_norm          x, o          -> m = x + o, b    gather of b
//   mlp               m, b          -> m, d            sum of d
//   mlp_residual      m, d          -> m + d
//
// Counts of heads and widths follow from the parameters that a segment gets. With a part of the
// heads and of the feed-forward width it computes that part (local_layout.h), and `o` and `d` are
// parts of a sum. A bias of o or down must be added once: after the sum, by the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "trainer/arch/documents.h"
#include "trainer/arch/recomputed.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl {

using Tensors = std::vector<at::Tensor>;

// The communication that the tensors after a segment need if the mesh divides a layer or a
// sequence.
enum class Exchange : uint8_t {
  kNone,
  kGather,         // the last tensor, from all parts of the sequence
  kKeysAndValues,  // the last two, likewise
  kSum,            // the last tensor, over all parts of the layer
};

// The common arguments of all segments of a layer; it outlives the call.
struct LayerCall {
  const Tensors& parameters;  // of the layer, in the order of its layout
  const Documents& documents;
  Recomputed* recomputed = nullptr;  // as in Model::layer
  // The parameters are one rank's parts of a layer, and the caller makes the exchanges.
  bool divided = false;
};

struct Segment {
  const char* name;
  std::vector<size_t> parameters;  // that it uses: indices in LayerCall::parameters
  Exchange after = Exchange::kNone;
  // Of those that `parameters` names: a bias, which the caller adds to the sum after the segment if
  // the call is divided. Otherwise run() adds it.
  std::optional<size_t> addend;
  std::function<Tensors(const LayerCall&, const Tensors&)> run;
};

// A part of a decoder layer: without the residual stream, except the norms, which begin a branch
// and so are the segment itself.
struct DecoderPart {
  std::vector<size_t> parameters;
  std::function<Tensors(const LayerCall&, const Tensors&)> run;
  std::optional<size_t> addend = std::nullopt;  // as in Segment
};

struct DecoderLayer {
  DecoderPart attention_norm;    // x -> x, a
  DecoderPart qkv;               // a -> q [B, T, H, h], k, v [B, T, K, h]
  DecoderPart attention;         // q, k, v -> mixed [B, T, H * h]
  DecoderPart attention_output;  // mixed -> o [B, T, D]
  DecoderPart mlp_norm;          // x, o -> m, b
  DecoderPart mlp;               // b -> d [B, T, D]
};

// Of what a norm is given: the branch before, where there is one, is added.
at::Tensor residual_stream(const Tensors& in);

std::vector<Segment> segments_of(DecoderLayer layer);

}  // namespace hpctl
