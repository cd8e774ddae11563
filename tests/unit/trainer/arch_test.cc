// SPDX-License-Identifier: Apache-2.0
// What every architecture of the registry must be able to do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/job/architecture.h"
#include "trainer/arch/hf_config.h"
#include "trainer/arch/initial_values.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

ModelSpec small_model(Arch arch) {
  ModelSpec model;
  model.arch = arch;
  model.dim = 64;
  model.layers = 3;
  model.heads = 4;
  model.kv_heads = traits_of(arch).key_heads == KeyHeads::kGrouped ? 2 : 4;
  model.ffn = 96;
  model.vocab = 300;
  model.max_positions = 128;
  if (traits_of(arch).head_dim == HeadDim::kFree) model.head_dim = 24;
  if (traits_of(arch).window == Window::kSliding) model.sliding_window = 50;
  return model;
}

TEST(Registry, AnArchitectureSurvivesTheFormOfHuggingFace) {
  for (const char* name : words_of(Arch{})) {
    const Arch arch = *from_word<Arch>(name);
    const HfConfig config{.model = small_model(arch), .max_len = 128, .dtype = "float32"};
    const auto back = hf_config_from_text(to_hf_config_text(config), "config.json");
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->model.arch, arch) << name;
    EXPECT_EQ(model_layout(back->model), model_layout(config.model)) << name;
    EXPECT_EQ(back->model.head_dim, config.model.head_dim) << name;
    EXPECT_EQ(back->model.sliding_window, config.model.sliding_window) << name;
    EXPECT_EQ(to_hf_config_text(*back), to_hf_config_text(config)) << name;
  }
}

TEST(Registry, TensorsHaveNamesOfTheirOwnAndFirstValues) {
  for (const char* name : words_of(Arch{})) {
    const Arch arch = *from_word<Arch>(name);
    const ModelSpec model = small_model(arch);
    const Architecture& architecture = architecture_of(model);
    const std::vector<Block> blocks = model_layout(model);
    EXPECT_EQ(blocks.size(), 5U) << "embed, three layers, head";
    std::set<std::string> names;
    int embeddings = 0;
    for (const Block& block : blocks) {
      for (const TensorSlot& tensor : block.tensors) {
        EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
        if (tensor.shape.size() < 2) continue;
        EXPECT_GT(architecture.initial(model, block, tensor.name).std, 0) << tensor.name;
        if (!architecture.is_embedding(tensor.name)) continue;
        ++embeddings;
        EXPECT_EQ(block.name, "embed") << tensor.name;
      }
    }
    EXPECT_EQ(embeddings, traits_of(arch).positions == Positions::kLearned ? 2 : 1) << name;
    EXPECT_GT(parameter_count(blocks), architecture.looked_up(model)) << name;
  }
}

TEST(Lora, AdaptersOfEachTargetInTheOrderOfTheLayer) {
  const ModelSpec model = *model_preset("tiny-qwen2");
  LoraSpec lora;
  lora.rank = 8;
  lora.targets = {LoraTarget::kDownProj, LoraTarget::kQProj};
  const std::vector<Block> blocks = adapter_layout(model, lora);
  ASSERT_EQ(blocks.size(), static_cast<size_t>(model.layers));
  const Block& last = blocks.back();
  const std::string prefix = "model.layers." + std::to_string(model.layers - 1) + ".";
  ASSERT_EQ(last.tensors.size(), 4U);
  EXPECT_EQ(last.tensors[0].name, prefix + "self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(last.tensors[0].shape, (std::vector<int64_t>{8, model.dim}));
  EXPECT_EQ(last.tensors[1].name, prefix + "self_attn.q_proj.lora_B.weight");
  EXPECT_EQ(last.tensors[1].shape, (std::vector<int64_t>{model.heads * model.head_size(), 8}));
  EXPECT_EQ(last.tensors[3].name, prefix + "mlp.down_proj.lora_B.weight");
  EXPECT_EQ(last.tensors[3].shape, (std::vector<int64_t>{model.dim, 8}));
}

// Kaiming's with a = sqrt(5): uniform with the variance 1 / (3 in); and the same for every world.
TEST(Lora, FirstValuesArePefts) {
  const ModelSpec model = *model_preset("debugmodel");
  LoraSpec lora;
  lora.rank = 16;
  const Block block = adapter_layout(model, lora)[2];
  std::vector<float> whole(static_cast<size_t>(block.numel));
  fill_initial_values(model, block, 9, {0, block.numel}, whole.data());
  for (const TensorSlot& tensor : block.tensors) {
    const std::span<const float> values(whole.data() + tensor.offset,
                                        static_cast<size_t>(tensor.numel));
    double sum = 0;
    double squares = 0;
    double largest = 0;
    for (const float value : values) {
      sum += value;
      squares += double{value} * value;
      largest = std::max(largest, std::abs(double{value}));
    }
    if (tensor.name.ends_with(kLoraB)) {
      EXPECT_EQ(largest, 0) << tensor.name;
      continue;
    }
    const auto in = static_cast<double>(tensor.shape[1]);
    const auto count = static_cast<double>(tensor.numel);
    EXPECT_LT(largest, 1 / std::sqrt(in)) << tensor.name;
    EXPECT_GT(largest, 0.99 / std::sqrt(in)) << tensor.name;
    EXPECT_NEAR(squares / count * 3 * in, 1, 0.05) << tensor.name;
    EXPECT_NEAR(sum / count * std::sqrt(in), 0, 0.05) << tensor.name;
  }
  std::vector<float> part(1000);
  fill_initial_values(model, block, 9, {1600, 2600}, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 1600));
}

TEST(Registry, RefusesTheModelOfAStranger) {
  const auto refused = hf_config_from_text(R"({"model_type": "bert"})", "config.json");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "config.json: model_type: expected llama, gpt2, qwen2, qwen3 or mistral, found "
            "\"bert\"");
}

}  // namespace
}  // namespace hpctl
