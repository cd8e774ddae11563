// SPDX-License-Identifier: Apache-2.0
// Named models. Sources of the dimensions: Llama 2 and Llama 3.x from the config.json files that
// Meta published with the weights; debugmodel from TorchTitan (models/llama3/__init__.py at
// b5bcd76); the GPT-3 family from Megatron-LM's weak-scaling experiments (D. Narayanan et al.,
// "Efficient Large-Scale Language Model Training on GPU Clusters", 2021, table 1: vocabulary
// 51200, 2048 positions); Qwen2.5 and Qwen3 (dense) and Mistral from the config.json of
// Qwen/Qwen2.5-* (base), Qwen/Qwen3-*, mistralai/Mistral-7B-v0.1, Mistral-7B-v0.3 and
// Mistral-Nemo-Base-2407 on Hugging Face (Qwen3 beside TorchTitan's models/qwen3/flavors.py at
// 0276e6e, which has the same). tests/unit/trainer/optim_test.cc counts their parameters and
// compares with what the publishers say. "tiny" and "tiny-*" are ours, for tests.
#include <array>

#include "common/job/train_spec.h"

namespace hpctl {

namespace {

struct Preset {
  const char* name;
  int64_t dim, layers, heads, kv_heads, ffn, vocab;
  double rope_theta;
  double rope_factor;     // 0 = no scaling; the other parameters of the scaling are the defaults
  int64_t max_positions;  // as published, for an export; 0 = none
  bool tied = false;      // embeddings
  Arch arch = Arch::llama;
  double norm_eps = 1e-5;
  int64_t head_dim = 0;  // 0 = dim / heads
  int64_t sliding_window = 0;
};
// A tied embedding as wide as 1 / sqrt(dim) makes every token predict itself: the first loss is far
// above ln(vocab).
constexpr double kTiedInitStd = 0.02;
constexpr std::array<Preset, 32> kPresets = {{
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
    {"tiny-qwen2", 64, 2, 4, 2, 192, 256, 1e6, 0, 0, true, Arch::qwen2, 1e-6},
    {"qwen2.5-0.5b", 896, 24, 14, 2, 4864, 151936, 1e6, 0, 32768, true, Arch::qwen2, 1e-6},
    {"qwen2.5-1.5b", 1536, 28, 12, 2, 8960, 151936, 1e6, 0, 131072, true, Arch::qwen2, 1e-6},
    {"qwen2.5-3b", 2048, 36, 16, 2, 11008, 151936, 1e6, 0, 32768, true, Arch::qwen2, 1e-6},
    {"qwen2.5-7b", 3584, 28, 28, 4, 18944, 152064, 1e6, 0, 131072, false, Arch::qwen2, 1e-6},
    {"qwen2.5-14b", 5120, 48, 40, 8, 13824, 152064, 1e6, 0, 131072, false, Arch::qwen2, 1e-5},
    {"qwen2.5-32b", 5120, 64, 40, 8, 27648, 152064, 1e6, 0, 131072, false, Arch::qwen2, 1e-5},
    {"qwen2.5-72b", 8192, 80, 64, 8, 29568, 152064, 1e6, 0, 131072, false, Arch::qwen2, 1e-5},
    {"tiny-qwen3", 64, 2, 4, 2, 192, 256, 1e6, 0, 0, true, Arch::qwen3, 1e-6, 24},
    {"qwen3-0.6b", 1024, 28, 16, 8, 3072, 151936, 1e6, 0, 40960, true, Arch::qwen3, 1e-6, 128},
    {"qwen3-1.7b", 2048, 28, 16, 8, 6144, 151936, 1e6, 0, 40960, true, Arch::qwen3, 1e-6, 128},
    {"qwen3-4b", 2560, 36, 32, 8, 9728, 151936, 1e6, 0, 40960, true, Arch::qwen3, 1e-6, 128},
    {"qwen3-8b", 4096, 36, 32, 8, 12288, 151936, 1e6, 0, 40960, false, Arch::qwen3, 1e-6, 128},
    {"qwen3-14b", 5120, 40, 40, 8, 17408, 151936, 1e6, 0, 40960, false, Arch::qwen3, 1e-6, 128},
    {"qwen3-32b", 5120, 64, 64, 8, 25600, 151936, 1e6, 0, 40960, false, Arch::qwen3, 1e-6, 128},
    {"tiny-mistral", 64, 2, 4, 2, 192, 256, 1e4, 0, 0, false, Arch::mistral, 1e-5, 0, 11},
    {"mistral-7b", 4096, 32, 32, 8, 14336, 32000, 1e4, 0, 32768, false, Arch::mistral, 1e-5, 0,
     4096},
    {"mistral-7b-v0.3", 4096, 32, 32, 8, 14336, 32768, 1e6, 0, 32768, false, Arch::mistral},
    {"mistral-nemo-12b", 5120, 40, 32, 8, 14336, 131072, 1e6, 0, 128000, false, Arch::mistral, 1e-5,
     128},
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
    model.arch = p.arch;
    model.dim = p.dim;
    model.layers = p.layers;
    model.heads = p.heads;
    model.kv_heads = p.kv_heads;
    model.head_dim = p.head_dim;
    model.ffn = p.ffn;
    model.vocab = p.vocab;
    model.rope_theta = p.rope_theta;
    model.norm_eps = p.norm_eps;
    model.rope_scaling.factor = p.rope_factor;
    model.max_positions = p.max_positions;
    model.tied_embeddings = p.tied;
    model.init_std = p.tied ? kTiedInitStd : 0;
    model.sliding_window = p.sliding_window;
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
