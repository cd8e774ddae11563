// SPDX-License-Identifier: Apache-2.0
// The interface of an architecture for the trainer and its tools. Its code is in a separate folder
// (llama/, gpt/, ...), its name in one line of common/job/architecture.h, and no other code
// depends on the architecture of a model. The folder's namespace gives
//
//   kArchitecture   the table below, free of LibTorch: hpctl plans and converts checkpoints with it
//   make_model()    the forward pass (model.h), which hptrain alone links; or that of another
//                   folder serves, as llama/family.h's does for qwen2, qwen3 and mistral
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/train_spec.h"
#include "common/layout/block_layout.h"
#include "common/layout/local_layout.h"

namespace hpctl {

struct HfConfig;
class HfKeys;

// Normal, mean 0.
struct InitialDistribution {
  double std = 0;
  double cut = 0;  // truncated at so many std; 0 = not at all
};

// The tensors that autograd keeps of one layer, in elements of the type of computation for each
// element of the residual stream (norms), of queries and keys (theirs) and of the feed-forward
// part's hidden width (the rest). The operations between products are fused, on a CPU and on a GPU.
struct LayerMemory {
  double norms_kept;  // of both
  double ffn_kept;
  double ffn_products;  // those of them that a product of matrices made
  double ffn_backward;  // gradients at the peak of the backward pass
  // For norms of queries and keys, beside their results, which attention keeps.
  double head_norms_kept = 0;
};

// The form of Hugging Face transformers.
struct HuggingFaceForm {
  const char* model_type;  // of config.json
  const char* family;      // for people
  // Tensors of the model without its head lack it: published weights may be those. "" = none.
  std::string_view base_prefix;
  // Refuses what our model does not compute; `config` has the architecture.
  void (*read_config)(HfKeys& keys, HfConfig& config);
  std::string (*config_text)(const HfConfig& config);
  // A stored tensor that is no parameter, as older files have.
  bool (*is_constant)(std::string_view tensor);
};

struct Architecture {
  // Blocks in forward order: "embed", "layers.0" ..., "head". Names, shapes and order of tensors
  // are Hugging Face's, so that weights are never permuted.
  std::vector<Block> (*layout)(const ModelSpec& model);
  bool (*is_embedding)(std::string_view tensor);
  // How tp cuts a tensor of layout().
  CuttingRule (*cut)(const ModelSpec& model, std::string_view tensor);
  // Of a matrix; norms start from 1 and biases from 0 (initial_values.h).
  InitialDistribution (*initial)(const ModelSpec& model, const Block& block,
                                 std::string_view tensor);
  // Parameters that are only looked up, never multiplied: no floating-point operations.
  int64_t (*looked_up)(const ModelSpec& model);
  LayerMemory layer_memory;
  HuggingFaceForm hugging_face;
};

const Architecture& architecture_of(const ModelSpec& model);
// That whose config.json has this model_type.
std::optional<Arch> find_hugging_face(std::string_view model_type);
// "llama, gpt2 or qwen2".
std::string hugging_face_types();

std::vector<Block> model_layout(const ModelSpec& model);

// The model's blocks with the rule of each tensor, for local_layout().
CutModel cut_model(const ModelSpec& model);

// For layout(): names the blocks `embed`, a `layer` for each of the model's, and `head`, which gets
// the output projection (lm_head.weight) unless that is the embedding.
std::vector<Block> stack_blocks(const ModelSpec& model, Block embed,
                                const std::function<Block(const ModelSpec&, int64_t)>& layer,
                                Block head);

// Exempts the tensors of the groups from weight decay, and only those (OptimizerSpec::no_decay).
void set_no_decay(const ModelSpec& model, std::vector<Block>& blocks,
                  const std::vector<DecayGroup>& groups);

}  // namespace hpctl
