// SPDX-License-Identifier: Apache-2.0
// Named models. Sources of the dimensions: Llama 2 and Llama 3.x from the config.json files that
// Meta published with the weights; debugmodel from TorchTitan (models/llama3/__init__.py at
// b5bcd76); the GPT-3 family from Megatron-LM's weak-scaling experiments (D. Narayanan et al.,
// "Efficient Large-Scale Language Model Training on GPU Clusters", 2021, table 1: vocabulary
// 51200, 2048 positions); "tiny" and
// "tiny-gpt" are ours, for tests.
#include <array>

#include "common/base/train_spec.h"

namespace hpctl {

namespace {

struct Preset {
  const char* name;
  int64_t dim, layers, heads, kv_heads, ffn, vocab;
  double rope_theta;
  double rope_factor;     // 0 = no scaling; the other parameters of the scaling are the defaults
  int64_t max_positions;  // as published, for an export; 0 = none
  bool tied = false;      // embeddings
};
constexpr std::array<Preset, 13> kPresets = {{
    {"tiny", 64, 2, 4, 2, 192, 256, 5e5, 0, 0},
    {"debugmodel", 256, 6, 16, 16, 768, 2048, 5e5, 0, 0},
    {"llama2-7b", 4096, 32, 32, 32, 11008, 32000, 1e4, 0, 4096},
    {"llama2-13b", 5120, 40, 40, 40, 13824, 32000, 1e4, 0, 4096},
    {"llama2-70b", 8192, 80, 64, 8, 28672, 32000, 1e4, 0, 4096},
    {"llama3-8b", 4096, 32, 32, 8, 14336, 128256, 5e5, 0, 8192},
    {"llama3-70b", 8192, 80, 64, 8, 28672, 128256, 5e5, 0, 8192},
    {"llama3-405b", 16384, 126, 128, 8, 53248, 128256, 5e5, 0, 8192},
    {"llama3.1-8b", 4096, 32, 32, 8, 14336, 128256, 5e5, 8, 131072},
    {"llama3.1-70b", 8192, 80, 64, 8, 28672, 128256, 5e5, 8, 131072},
    {"llama3.1-405b", 16384, 126, 128, 8, 53248, 128256, 5e5, 8, 131072},
    {"llama3.2-1b", 2048, 16, 32, 8, 8192, 128256, 5e5, 32, 131072, true},
    {"llama3.2-3b", 3072, 28, 24, 8, 8192, 128256, 5e5, 32, 131072, true},
}};

struct GptPreset {
  const char* name;
  int64_t dim, layers, heads;
  int64_t vocab = 51200;
  int64_t max_positions = 2048;
};
constexpr std::array<GptPreset, 9> kGptPresets = {{
    {"tiny-gpt", 64, 2, 4, 256, 128},
    {"gpt3-1.7b", 2304, 24, 24},
    {"gpt3-3.6b", 3072, 30, 32},
    {"gpt3-7.5b", 4096, 36, 32},
    {"gpt3-18.4b", 6144, 40, 48},
    {"gpt3-39.1b", 8192, 48, 64},
    {"gpt3-76.1b", 10240, 60, 80},
    {"gpt3-145.6b", 12288, 80, 96},
    {"gpt3-310b", 16384, 96, 128},
}};

ModelSpec gpt_of(const GptPreset& p) {
  ModelSpec model;
  model.preset = p.name;
  model.arch = Arch::gpt;
  model.dim = p.dim;
  model.layers = p.layers;
  model.heads = p.heads;
  model.kv_heads = p.heads;
  model.ffn = 4 * p.dim;
  model.vocab = p.vocab;
  model.max_positions = p.max_positions;
  model.tied_embeddings = true;
  return model;
}

}  // namespace

std::optional<ModelSpec> model_preset(const std::string& name) {
  for (const Preset& p : kPresets) {
    if (name != p.name) continue;
    ModelSpec model;
    model.preset = p.name;
    model.dim = p.dim;
    model.layers = p.layers;
    model.heads = p.heads;
    model.kv_heads = p.kv_heads;
    model.ffn = p.ffn;
    model.vocab = p.vocab;
    model.rope_theta = p.rope_theta;
    model.rope_scaling.factor = p.rope_factor;
    model.max_positions = p.max_positions;
    model.tied_embeddings = p.tied;
    return model;
  }
  for (const GptPreset& p : kGptPresets) {
    if (name == p.name) return gpt_of(p);
  }
  return std::nullopt;
}

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  for (const GptPreset& p : kGptPresets) names.emplace_back(p.name);
  return names;
}

}  // namespace hpctl
