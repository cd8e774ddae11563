// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/registry.h"

#include <algorithm>
#include <array>
#include <utility>

namespace hpctl {

#define HPCTL_DECLARE(name, ...)           \
  namespace name {                         \
  extern const Architecture kArchitecture; \
  }
HPCTL_ARCHITECTURES(HPCTL_DECLARE)
#undef HPCTL_DECLARE

namespace {

#define HPCTL_ADDRESS(name, ...) &name::kArchitecture,
constexpr std::array<const Architecture*, kArchitectureTraits.size()> kArchitectures = {
    HPCTL_ARCHITECTURES(HPCTL_ADDRESS)};
#undef HPCTL_ADDRESS

}  // namespace

const Architecture& architecture_of(const ModelSpec& model) {
  return *kArchitectures[static_cast<size_t>(model.arch)];
}

std::optional<Arch> find_hugging_face(std::string_view model_type) {
  for (size_t i = 0; i < kArchitectures.size(); ++i) {
    if (kArchitectures[i]->hugging_face.model_type == model_type) return static_cast<Arch>(i);
  }
  return std::nullopt;
}

std::string hugging_face_types() {
  std::string text;
  for (size_t i = 0; i < kArchitectures.size(); ++i) {
    if (i > 0) text += i + 1 < kArchitectures.size() ? ", " : " or ";
    text += kArchitectures[i]->hugging_face.model_type;
  }
  return text;
}

std::vector<Block> model_layout(const ModelSpec& model) {
  return architecture_of(model).layout(model);
}

CutModel cut_model(const ModelSpec& model) {
  const Architecture& architecture = architecture_of(model);
  CutModel whole;
  for (Block& block : architecture.layout(model)) {
    CutBlock& cut = whole.blocks.emplace_back();
    for (const TensorSlot& tensor : block.tensors) {
      cut.rules.push_back(architecture.cut(model, tensor.name));
    }
    cut.block = std::move(block);
  }
  // The first tensor of the embedding's block is that of the tokens.
  if (model.tied_embeddings) whole.tied = whole.blocks.front().block.tensors.front().name;
  return whole;
}

std::vector<Block> stack_blocks(const ModelSpec& model, Block embed,
                                const std::function<Block(const ModelSpec&, int64_t)>& layer,
                                Block head) {
  std::vector<Block> blocks;
  blocks.reserve(static_cast<size_t>(model.layers) + 2);
  embed.name = "embed";
  blocks.push_back(std::move(embed));
  for (int64_t i = 0; i < model.layers; ++i) {
    blocks.push_back(layer(model, i));
    blocks.back().name = "layers." + std::to_string(i);
  }
  head.name = "head";
  if (!model.tied_embeddings) append_tensor(head, "lm_head.weight", {model.vocab, model.dim});
  blocks.push_back(std::move(head));
  return blocks;
}

void set_no_decay(const ModelSpec& model, std::vector<Block>& blocks,
                  const std::vector<DecayGroup>& groups) {
  const Architecture& architecture = architecture_of(model);
  const auto group_of = [&](const TensorSlot& tensor) -> std::optional<DecayGroup> {
    if (tensor.name.ends_with(".bias")) return DecayGroup::kBiases;
    if (tensor.shape.size() < 2) return DecayGroup::kNorms;
    if (architecture.is_embedding(tensor.name)) return DecayGroup::kEmbeddings;
    return std::nullopt;
  };
  for (Block& block : blocks) {
    for (TensorSlot& tensor : block.tensors) {
      tensor.no_decay = std::find(groups.begin(), groups.end(), group_of(tensor)) != groups.end();
    }
  }
}

}  // namespace hpctl
