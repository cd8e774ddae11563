// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/lora.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

constexpr std::string_view kWeight = ".weight";

// That of A or B, of which `end` is the name's end, which cut their matrix's `dim`.
CuttingRule rule_of_adapter(const ModelSpec& model, std::string_view tensor, std::string_view end,
                            int32_t dim) {
  tensor.remove_suffix(end.size());
  const CuttingRule rule =
      architecture_of(model).cut(model, std::string(tensor) + std::string(kWeight));
  return rule.dim == dim ? rule : CuttingRule{};
}

}  // namespace

bool is_lora_target(const LoraSpec& lora, std::string_view tensor) {
  return std::any_of(lora.targets.begin(), lora.targets.end(), [&](LoraTarget target) {
    return tensor.ends_with("." + std::string(to_word(target)) + std::string(kWeight));
  });
}

std::vector<Block> adapter_layout(const ModelSpec& model, const LoraSpec& lora) {
  std::vector<Block> adapters;
  for (const Block& block : model_layout(model)) {
    Block adapter;
    adapter.name = block.name;
    for (const TensorSlot& tensor : block.tensors) {
      if (!is_lora_target(lora, tensor.name)) continue;
      const std::string name = tensor.name.substr(0, tensor.name.size() - kWeight.size());
      append_tensor(adapter, name + std::string(kLoraA), {lora.rank, tensor.shape.at(1)});
      append_tensor(adapter, name + std::string(kLoraB), {tensor.shape.at(0), lora.rank});
    }
    if (!adapter.tensors.empty()) adapters.push_back(std::move(adapter));
  }
  return adapters;
}

CuttingRule cutting_rule(const ModelSpec& model, std::string_view tensor) {
  if (tensor.ends_with(kLoraA)) return rule_of_adapter(model, tensor, kLoraA, 1);
  if (tensor.ends_with(kLoraB)) return rule_of_adapter(model, tensor, kLoraB, 0);
  return architecture_of(model).cut(model, tensor);
}

CutModel cut_adapters(const ModelSpec& model, const LoraSpec& lora) {
  CutModel adapters;
  for (Block& block : adapter_layout(model, lora)) {
    CutBlock& cut = adapters.blocks.emplace_back();
    for (const TensorSlot& tensor : block.tensors) {
      cut.rules.push_back(cutting_rule(model, tensor.name));
    }
    cut.block = std::move(block);
  }
  return adapters;
}

std::vector<Block> trained_layout(const TrainSpec& train) {
  return train.lora.on() ? adapter_layout(train.model, train.lora) : model_layout(train.model);
}

CutModel trained_cuts(const TrainSpec& train) {
  return train.lora.on() ? cut_adapters(train.model, train.lora) : cut_model(train.model);
}

std::optional<double> lora_a_bound(const TensorSlot& tensor) {
  if (!tensor.name.ends_with(kLoraA)) return std::nullopt;
  return 1.0 / std::sqrt(static_cast<double>(tensor.shape.at(1)));
}

}  // namespace hpctl
