// SPDX-License-Identifier: Apache-2.0
// Parameters of models: how many there are, which frequencies turn them, which do not decay, and
// their initial values. Against published sizes, formulas and theory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "common/layout/block_layout.h"
#include "trainer/arch/initial_values.h"
#include "trainer/arch/registry.h"
#include "trainer/arch/rotary.h"

namespace hpctl {
namespace {

void expect_parameters(const std::map<std::string, int64_t>& of_presets) {
  for (const auto& [name, count] : of_presets) {
    EXPECT_EQ(parameter_count(model_layout(*model_preset(name))), count) << name;
  }
}

TEST(Models, HaveAsManyParametersAsPublished) {
  expect_parameters({// TorchTitan's flavors (reference table of the design), Meta's model cards.
                     {"debugmodel", 6'163'712},
                     {"llama2-7b", 6'738'415'616},
                     {"llama2-13b", 13'015'864'320},
                     {"llama2-70b", 68'976'648'192},
                     {"llama3-8b", 8'030'261'248},
                     {"llama3-70b", 70'553'706'496},
                     {"llama3-405b", 405'853'388'800},
                     {"llama3.1-8b", 8'030'261'248},
                     {"llama3.2-1b", 1'235'814'400},
                     {"llama3.2-3b", 3'212'749'824}});
}

// As Hugging Face counts the elements of the published safetensors.
TEST(Models, ThoseOfLlamasKindHaveAsManyParametersAsPublished) {
  expect_parameters({{"qwen2.5-0.5b", 494'032'768},
                     {"qwen2.5-1.5b", 1'543'714'304},
                     {"qwen2.5-3b", 3'085'938'688},
                     {"qwen2.5-7b", 7'615'616'512},
                     {"qwen2.5-14b", 14'770'033'664},
                     {"qwen2.5-32b", 32'763'876'352},
                     {"qwen2.5-72b", 72'706'203'648},
                     {"qwen3-0.6b", 596'049'920},
                     {"qwen3-1.7b", 1'720'574'976},
                     {"qwen3-4b", 4'022'468'096},
                     {"qwen3-8b", 8'190'735'360},
                     {"qwen3-14b", 14'768'307'200},
                     {"qwen3-32b", 32'762'123'264},
                     {"mistral-7b", 7'241'732'096},
                     {"mistral-7b-v0.3", 7'248'023'552},
                     {"mistral-nemo-12b", 12'247'782'400}});
}

// The sizes of table 1 of the paper that model_presets.cc names, in billions, and its formula
// 12 l h^2 (1 + 13 / 12h + (V + s) / 12lh), which leaves the final norm out.
TEST(Models, GptsHaveAsManyParametersAsPublished) {
  const std::map<std::string, double> expected = {
      {"gpt3-1.7b", 1.7},   {"gpt3-3.6b", 3.6},   {"gpt3-7.5b", 7.5},     {"gpt3-18.4b", 18.4},
      {"gpt3-39.1b", 39.1}, {"gpt3-76.1b", 76.1}, {"gpt3-145.6b", 145.6}, {"gpt3-310b", 310.1}};
  for (const auto& [name, billions] : expected) {
    const ModelSpec m = *model_preset(name);
    const int64_t count = parameter_count(model_layout(m));
    EXPECT_NEAR(static_cast<double>(count) * 1e-9, billions, 0.05) << name;
    EXPECT_EQ(count - 2 * m.dim, 12 * m.layers * m.dim * m.dim + 13 * m.layers * m.dim +
                                     (m.vocab + m.max_positions) * m.dim);
  }
  // GPT-2 small, as transformers counts it.
  ModelSpec gpt2 = *model_preset("tiny-gpt");
  gpt2.dim = 768;
  gpt2.layers = 12;
  gpt2.heads = gpt2.kv_heads = 12;
  gpt2.ffn = 3072;
  gpt2.vocab = 50257;
  gpt2.max_positions = 1024;
  EXPECT_EQ(parameter_count(model_layout(gpt2)), 124'439'808);
}

// From Hugging Face's formula, by hand: 8192 / wavelength decides.
TEST(Models, Llama31ScalesSlowRotations) {
  const ModelSpec plain = *model_preset("llama3-8b");
  const ModelSpec scaled = *model_preset("llama3.1-8b");
  const std::vector<double> before = rotary_frequencies(plain);
  const std::vector<double> after = rotary_frequencies(scaled);
  ASSERT_EQ(after.size(), 64U);
  EXPECT_DOUBLE_EQ(before[1], std::pow(500000.0, -2.0 / 128));
  int kept = 0;
  int divided = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    const double wavelength = 2 * M_PI / before[i];
    const double smooth = (8192 / wavelength - 1) / 3;
    if (wavelength < 2048) {
      EXPECT_DOUBLE_EQ(after[i], before[i]) << i;
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_DOUBLE_EQ(after[i], before[i] / 8) << i;
      ++divided;
    } else {
      EXPECT_NEAR(after[i], (1 - smooth) * before[i] / 8 + smooth * before[i], 1e-15) << i;
    }
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(divided, 29);
}

TEST(NoDecay, ByGroup) {
  const ModelSpec model = *model_preset("tiny");
  std::vector<Block> blocks = model_layout(model);
  const auto exempt = [&] {
    std::vector<std::string> names;
    for (const Block& block : blocks) {
      for (const TensorSlot& t : block.tensors) {
        if (t.no_decay) names.push_back(t.name);
      }
    }
    return names;
  };
  const std::vector<std::string> norms = exempt();
  EXPECT_EQ(norms.size(), 5U);
  set_no_decay(model, blocks, {DecayGroup::kNorms, DecayGroup::kBiases});
  EXPECT_EQ(exempt(), norms) << "the default";
  set_no_decay(model, blocks, {DecayGroup::kEmbeddings});
  EXPECT_EQ(exempt(), std::vector<std::string>{"model.embed_tokens.weight"});
  set_no_decay(model, blocks, {});
  EXPECT_TRUE(exempt().empty());
}

TEST(NoDecay, OfHeadsNormsAndBiases) {
  const auto exempt = [](const char* preset, DecayGroup group) {
    const ModelSpec model = *model_preset(preset);
    Block layer = model_layout(model)[1];
    std::vector<Block> blocks = {layer};
    set_no_decay(model, blocks, {group});
    std::string names;
    for (const TensorSlot& t : blocks[0].tensors) {
      if (t.no_decay) names += t.name.substr(std::string("model.layers.0.").size()) + " ";
    }
    return names;
  };
  const std::string norms = "input_layernorm.weight post_attention_layernorm.weight ";
  EXPECT_EQ(exempt("tiny-qwen2", DecayGroup::kNorms), norms);
  EXPECT_EQ(exempt("tiny-qwen2", DecayGroup::kBiases),
            "self_attn.q_proj.bias self_attn.k_proj.bias self_attn.v_proj.bias ");
  EXPECT_EQ(exempt("tiny-qwen3", DecayGroup::kNorms),
            "input_layernorm.weight self_attn.q_norm.weight self_attn.k_norm.weight "
            "post_attention_layernorm.weight ");
  EXPECT_EQ(exempt("tiny-mistral", DecayGroup::kNorms), norms);
  EXPECT_EQ(exempt("tiny-mistral", DecayGroup::kBiases), "");
}

TEST(NoDecay, ByGroupOfAGpt) {
  const ModelSpec model = *model_preset("tiny-gpt");
  std::vector<Block> blocks = model_layout(model);
  const auto decaying = [&](std::vector<DecayGroup> groups) {
    set_no_decay(model, blocks, groups);
    std::string names;
    for (const size_t b : {size_t{0}, size_t{1}, blocks.size() - 1}) {
      for (const TensorSlot& t : blocks[b].tensors) {
        if (!t.no_decay) names += t.name.substr(t.name.find('.') + 1) + " ";
      }
    }
    return names;
  };
  const std::string matrices =
      "h.0.attn.c_attn.weight h.0.attn.c_proj.weight h.0.mlp.c_fc.weight h.0.mlp.c_proj.weight ";
  EXPECT_EQ(decaying({DecayGroup::kNorms, DecayGroup::kBiases}),
            "wte.weight wpe.weight " + matrices);
  EXPECT_EQ(decaying({DecayGroup::kNorms, DecayGroup::kBiases, DecayGroup::kEmbeddings}), matrices);
  EXPECT_EQ(decaying({DecayGroup::kBiases, DecayGroup::kEmbeddings}),
            "h.0.ln_1.weight h.0.attn.c_attn.weight h.0.attn.c_proj.weight h.0.ln_2.weight "
            "h.0.mlp.c_fc.weight h.0.mlp.c_proj.weight ln_f.weight ");
}

TEST(InitialValues, QuantileInvertsTheNormalDistribution) {
  for (const double p : {1e-12, 1e-5, 0.02, 0.0243, 0.3, 0.5, 0.77, 0.976, 0.9999}) {
    const double z = normal_quantile(p);
    EXPECT_NEAR(0.5 * std::erfc(-z / std::sqrt(2.0)), p, 2e-9 * (1 + z * z) * p) << p;
  }
}

class Presets : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(InitialValues, Presets,
                         ::testing::Values("tiny", "tiny-gpt", "tiny-qwen2", "tiny-qwen3"));

TEST_P(Presets, DoNotDependOnTheWorld) {
  const ModelSpec model = *model_preset(GetParam());
  for (const Block& block : model_layout(model)) {
    std::vector<float> whole(block.numel);
    fill_initial_values(model, block, 7, {0, block.numel}, whole.data());
    for (const int32_t world : {2, 3, 8}) {
      const int64_t capacity = shard_capacity(block.numel, world);
      std::vector<float> all(capacity * world, -1.0F);
      for (int32_t r = 0; r < world; ++r) {
        fill_initial_values(model, block, 7, {capacity * r, capacity * (r + 1)},
                            all.data() + capacity * r);
      }
      for (int64_t i = 0; i < block.numel; ++i) ASSERT_EQ(all[i], whole[i]);
      for (size_t i = block.numel; i < all.size(); ++i) ASSERT_EQ(all[i], 0.0F) << "padding";
    }
  }
}

TEST(InitialValues, DoNotDependOnTheNumberOfThreads) {
  const ModelSpec model = *model_preset("debugmodel");
  const Block block = model_layout(model)[0];
  const ElementRange range = {block.numel / 3, block.numel + 1000};  // with padding
  ASSERT_GT(range.size(), 4 * (1 << 16)) << "too few elements for several threads";
  const auto filled = [&](int threads) {
    std::vector<float> values(range.size(), -1.0F);
    fill_initial_values(model, block, 7, range, values.data(), threads);
    return values;
  };
  const std::vector<float> alone = filled(1);
  for (const int threads : {2, 3, 64}) EXPECT_EQ(filled(threads), alone) << threads;
}

std::vector<float> initial_values(const ModelSpec& model, const Block& block) {
  std::vector<float> values(block.numel);
  fill_initial_values(model, block, 1, {0, block.numel}, values.data());
  return values;
}

// Mean 0, the standard deviation, and nothing larger than `most`.
void expect_distribution(const ModelSpec& model, const Block& block, const std::string& suffix,
                         double expected_std, double most) {
  const std::vector<float> values = initial_values(model, block);
  for (const TensorSlot& tensor : block.tensors) {
    if (!tensor.name.ends_with(suffix)) continue;
    double sum = 0;
    double squares = 0;
    double largest = 0;
    for (int64_t i = 0; i < tensor.numel; ++i) {
      const double x = values[tensor.offset + i];
      sum += x;
      squares += x * x;
      largest = std::max(largest, std::abs(x));
    }
    const auto n = static_cast<double>(tensor.numel);
    EXPECT_NEAR(sum / n, 0, 5 * expected_std / std::sqrt(n)) << tensor.name;
    EXPECT_NEAR(std::sqrt(squares / n), expected_std, 0.01 * expected_std) << tensor.name;
    EXPECT_LE(largest, most) << tensor.name;
    return;
  }
  FAIL() << "no tensor " << suffix;
}

TEST(InitialValues, FollowTheRulesOfAGpt) {
  ModelSpec model = *model_preset("tiny-gpt");
  model.dim = 256;
  model.ffn = 1024;
  model.layers = 6;
  model.tied_embeddings = false;
  const std::vector<Block> blocks = model_layout(model);
  expect_distribution(model, blocks[0], "wte.weight", 0.02, 0.14);
  expect_distribution(model, blocks[0], "wpe.weight", 0.02, 0.14);
  expect_distribution(model, blocks[1], "c_attn.weight", 0.02, 0.14);
  expect_distribution(model, blocks[2], "c_fc.weight", 0.02, 0.14);
  for (const size_t layer : {size_t{1}, size_t{6}}) {
    expect_distribution(model, blocks[layer], "attn.c_proj.weight", 0.02 / std::sqrt(12.0), 0.05);
    expect_distribution(model, blocks[layer], "mlp.c_proj.weight", 0.02 / std::sqrt(12.0), 0.05);
  }
  expect_distribution(model, blocks[7], "lm_head.weight", 0.02, 0.14);
  const std::vector<float> values = initial_values(model, blocks[1]);
  for (const TensorSlot& tensor : blocks[1].tensors) {
    if (tensor.shape.size() > 1) continue;
    const float expected = tensor.name.ends_with(".bias") ? 0 : 1;
    for (int64_t i = 0; i < tensor.numel; ++i) ASSERT_EQ(values[tensor.offset + i], expected);
  }
}

TEST(InitialValues, FollowTheRules) {
  const ModelSpec model = *model_preset("debugmodel");
  const std::vector<Block> blocks = model_layout(model);
  const auto check = [&](size_t b, const std::string& suffix, double expected_std, double most) {
    expect_distribution(model, blocks[b], suffix, expected_std, most);
  };
  check(0, "embed_tokens.weight", 1.0, 7);
  check(1, "q_proj.weight", 0.02, 0.14);
  check(1, "down_proj.weight", 0.02 / std::sqrt(2.0), 0.1);
  check(6, "o_proj.weight", 0.02 / std::sqrt(12.0), 0.05);
  // Truncation at three standard deviations narrows the distribution by 0.98658.
  check(7, "lm_head.weight", 0.98658 / 16.0, 3.0 / 16.0);
  EXPECT_EQ(initial_values(model, blocks[7])[0], 1.0F) << "norms start at one";
}

TEST(InitialValues, OfATiedModelAreSmallEnoughForAnEvenGuess) {
  ModelSpec model = *model_preset("tiny-qwen2");
  model.dim = 256;
  const auto check = [&](size_t b, const std::string& suffix, double expected_std, double most) {
    expect_distribution(model, model_layout(model)[b], suffix, expected_std, most);
  };
  check(0, "embed_tokens.weight", 0.02, 0.14);
  check(1, "o_proj.weight", 0.02 / std::sqrt(2.0), 0.1);
  model.init_std = 0.01;
  check(0, "embed_tokens.weight", 0.01, 0.07);
  check(1, "q_proj.weight", 0.01, 0.07);
  model.init_std = 0;  // as jobs of earlier releases were recorded
  check(0, "embed_tokens.weight", 0.98658 / 16.0, 3.0 / 16.0);
  model.tied_embeddings = false;
  model.init_std = 0.02;
  check(0, "embed_tokens.weight", 0.02, 0.14);
  check(3, "lm_head.weight", 0.02, 0.14);
}

TEST(InitialValues, SeedsAndTensorsDiffer) {
  const ModelSpec model = *model_preset("tiny");
  const Block block = model_layout(model)[1];
  std::vector<float> a(block.numel), b(block.numel);
  fill_initial_values(model, block, 1, {0, block.numel}, a.data());
  fill_initial_values(model, block, 2, {0, block.numel}, b.data());
  EXPECT_NE(a, b);
  const int64_t k = block.tensors[2].offset;
  const int64_t v = block.tensors[3].offset;
  EXPECT_NE(a[k], a[v]);
}

}  // namespace
}  // namespace hpctl
