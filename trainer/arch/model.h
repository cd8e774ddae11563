// SPDX-License-Identifier: Apache-2.0
// A decoder-only language model, block by block: token embedding, layers, and head (final norm,
// output projection, cross entropy). Derived classes hold the differences between architectures,
// each in the folder of its architecture (registry.h); the engine (parallel/fsdp.h) knows this
// interface only.
//
// Pure functions of their arguments: the caller owns parameters, memory and the autograd graph.
// Each function gets the parameters of its block in the order of its layout (registry.h). In
// bf16 and fp16, norms, positions, softmax and the loss are computed in fp32; in fp64 (for
// comparisons with other implementations) everything is.
//
// A layer is a list of segments (segments.h), between which the engine may communicate.
//
// Shapes: B sequences, T tokens each, D = dim. `documents` describes the B * T tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/job/job_spec.h"
#include "trainer/arch/attention_backend.h"
#include "trainer/arch/documents.h"
#include "trainer/arch/recomputed.h"
#include "trainer/arch/segments.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl {

// The type of norms, positions, softmax and loss where parameters and activations have type
// `compute`.
inline at::ScalarType wide_type(at::ScalarType compute) {
  return compute == at::kDouble ? at::kDouble : at::kFloat;
}

// x in that type; a wide tensor is itself.
inline at::Tensor widened(const at::Tensor& x) { return x.to(wide_type(x.scalar_type())); }

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // [B, T] int64 -> [B, T, D]
  virtual at::Tensor embed(const std::vector<at::Tensor>& parameters, const at::Tensor& tokens,
                           const Documents& documents) const = 0;
  // The segments of every layer, in order: [B, T, D] -> [B, T, D].
  virtual const std::vector<Segment>& segments() const = 0;
  // All of them, one graph. With `recomputed`, what cheap operations gave can be given up between
  // the forward and the backward pass.
  at::Tensor layer(const std::vector<at::Tensor>& parameters, const at::Tensor& x,
                   const Documents& documents, Recomputed* recomputed = nullptr) const;
  // Parameters: of the final norm and of the output projection (the embedding if that is tied). [B,
  // T, D] -> logits [B, T, vocab]
  at::Tensor logits(const std::vector<at::Tensor>& parameters, const at::Tensor& x) const {
    return project(parameters, final_norm(parameters, x));
  }
  // Its two halves, between which tensor parallelism gathers rows: x [..., D] -> [..., D] ->
  // [..., vocab], or the part of the vocabulary whose rows the projection has.
  virtual at::Tensor final_norm(const std::vector<at::Tensor>& parameters,
                                const at::Tensor& x) const = 0;
  virtual at::Tensor project(const std::vector<at::Tensor>& parameters,
                             const at::Tensor& normed) const = 0;
  // The second half of embed(), where the rows of the token embedding, parameters[0], are divided:
  // x [rows, D] are embeddings of tokens, `positions` [rows] int64 those in their documents.
  virtual at::Tensor with_positions(const std::vector<at::Tensor>& /*parameters*/,
                                    const at::Tensor& x, const at::Tensor& /*positions*/) const {
    return x;
  }
  // Sums over tokens that are counted (targets.h), in fp32, or fp64 where the logits are; `targets`
  // is [B, T] int64.
  struct Loss {
    at::Tensor entropy;    // cross entropy: what is reported
    at::Tensor objective;  // what is minimised: that plus the z-loss
  };
  Loss loss(const at::Tensor& logits, const at::Tensor& targets) const;
  // The implementation of attention, on which its bits also depend.
  virtual AttentionBackend attention_by() const = 0;
  double z_loss() const { return z_loss_; }

 protected:
  explicit Model(double z_loss) : z_loss_(z_loss) {}

 private:
  double z_loss_;
};

// The model of train.model.arch, for sequences of train.data.seq_len, with train.loss.z_loss,
// train.lora and train.gpu.attention; the rest of `train` is ignored. With LoRA the parameters of a
// layer's adapters follow the layer's (lora.h). `compute` is at::kFloat, at::kBFloat16, at::kHalf
// or at::kDouble, the type of parameters and activations. Its own tensors and its inputs are on
// `device`.
using MakeModel = std::unique_ptr<Model>(const TrainSpec& train, at::ScalarType compute,
                                         at::Device device);
std::unique_ptr<Model> make_model(const TrainSpec& train, at::ScalarType compute,
                                  at::Device device = at::kCPU);

}  // namespace hpctl
