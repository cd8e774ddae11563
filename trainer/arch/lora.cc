// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/lora.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

constexpr std::string_view kWeight = ".weight";

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

CutModel cut_adapters(const ModelSpec& model, const LoraSpec& lora) {
  CutModel adapters;
  for (Block& block : adapter_layout(model, lora)) {
    CutBlock& cut = adapters.blocks.emplace_back();
    for (const TensorSlot& tensor : block.tensors) {
      const bool is_a = tensor.name.ends_with(kLoraA);
      const size_t length = tensor.name.size() - (is_a ? kLoraA : kLoraB).size();
      const std::string base = tensor.name.substr(0, length) + std::string(kWeight);
      const CuttingRule rule = architecture_of(model).cut(model, base);
      cut.rules.push_back(rule.dim == (is_a ? 1 : 0) ? rule : CuttingRule{});
    }
    cut.block = std::move(block);
  }
  return adapters;
}

std::vector<Block> trained_layout(const TrainSpec& train) {
  return train.lora.on() ? adapter_layout(train.model, train.lora) : model_layout(train.model);
}

std::optional<double> lora_a_bound(const TensorSlot& tensor) {
  if (!tensor.name.ends_with(kLoraA)) return std::nullopt;
  return 1.0 / std::sqrt(static_cast<double>(tensor.shape.at(1)));
}

}  // namespace hpctl
