// SPDX-License-Identifier: Apache-2.0
// What every architecture of the registry must be able to do.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/base/architecture.h"
#include "trainer/arch/hf_config.h"
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

TEST(Registry, RefusesTheModelOfAStranger) {
  const auto refused = hf_config_from_text(R"({"model_type": "bert"})", "config.json");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "config.json: model_type: expected llama, gpt2, qwen2, qwen3 or mistral, found "
            "\"bert\"");
}

}  // namespace
}  // namespace hpctl
