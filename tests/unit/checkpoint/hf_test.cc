// SPDX-License-Identifier: Apache-2.0
// Export to and import from Hugging Face directories: every bit survives, an independent reader
// and writer (hf_peer.py, standard library only) agrees, and nothing unsuitable gets in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "common/base/checksum.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/support/json_mutation.h"
#include "tests/support/program_output.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/arch/hf_config.h"
#include "trainer/arch/registry.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/model_files.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/stored_tensors.h"

namespace hpctl {
namespace {

using testing::HasSubstr;

constexpr const char* kPython = "/usr/bin/python3";

ProgramOutput peer(const std::string& arguments) {
  return run_program(std::string(kPython) + " " HPCTL_SOURCE "/tests/unit/checkpoint/hf_peer.py " +
                     arguments);
}

std::string save(const TemporaryDirectory& dir, int32_t world_size) {
  const SyntheticSave save{dir / "saved", {40, 3}, world_size, 1, 2, {}};
  const auto saved = save_synthetic(save);
  EXPECT_TRUE(saved.ok()) << saved.error().message;
  return save.checkpoint_dir + "/step-40.g3";
}

// "NAME F32 SHAPE SHA256" of every parameter, as the peer prints them; sorted.
std::vector<std::string> expected_lines(const std::string& step_dir) {
  const Manifest manifest = read_manifest(step_dir).value();
  ShardFiles files(step_dir);
  std::vector<std::string> lines;
  for (const StoredTensor& tensor : tensors_by_name(manifest)) {
    if (tensor.kind != StateKind::kParam) continue;
    std::vector<float> values(static_cast<size_t>(tensor.slot->numel));
    EXPECT_TRUE(read_elements(manifest, files, tensor, 0, values).ok());
    Sha256 hash;
    hash.update(values.data(), values.size() * sizeof(float));
    std::string shape;
    for (const int64_t extent : tensor.slot->shape) {
      shape += (shape.empty() ? "" : "x") + std::to_string(extent);
    }
    lines.push_back(tensor.name + " F32 " + shape + " " + hash.hex_digest());
  }
  return lines;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

class HuggingFace : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_accessible(kPython)) GTEST_SKIP() << kPython << " is absent: no independent reader";
  }
  TemporaryDirectory dir_;
};

TEST_F(HuggingFace, AnIndependentReaderFindsEveryBitOfAnExport) {
  const std::string step_dir = save(dir_, 3);
  for (const uint64_t max_file_bytes : {uint64_t{1} << 40, uint64_t{2000}, uint64_t{1}}) {
    const std::string out = dir_ / ("out-" + std::to_string(max_file_bytes));
    const auto done = export_huggingface(step_dir, out, {.max_file_bytes = max_file_bytes});
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(done->tensors, 21U);
    EXPECT_EQ(done->files == 1, max_file_bytes > 2000);
    const ProgramOutput found = peer("read " + out);
    ASSERT_EQ(found.status, 0);
    EXPECT_EQ(sorted_lines(found.text), expected_lines(step_dir));
  }
}

TEST_F(HuggingFace, WhatAnIndependentWriterMadeComesBackBitByBit) {
  for (const char* dtype : {"F32", "BF16"}) {
    for (const char* files : {"1", "3"}) {
      const std::string name = std::string(dtype) + files;
      const std::string model = dir_ / name;
      ASSERT_EQ(peer("write " + model + " " + dtype + " " + files).status, 0);
      const auto done = import_huggingface(model, dir_ / (name + "-in"));
      ASSERT_TRUE(done.ok()) << done.error().message;
      ASSERT_TRUE(verify_checkpoint(done->path)->problems.empty());
      const std::string out = dir_ / (name + "-out");
      const bool bf16 = name.starts_with("B");
      ASSERT_TRUE(export_huggingface(done->path, out, {.bf16 = bf16}).ok());
      EXPECT_EQ(sorted_lines(peer("read " + out).text), sorted_lines(peer("read " + model).text));
    }
  }
}

TEST_F(HuggingFace, HalfPrecisionWidensExactly) {
  const std::string model = dir_ / "model";
  ASSERT_EQ(peer("write " + model + " F16 2").status, 0);
  const auto done = import_huggingface(model, dir_ / "in");
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(expected_lines(done->path), sorted_lines(peer("widen " + model).text));
}

// Lines of tensors, without the prefix that published weights lack, and without causal masks.
std::vector<std::string> gpt_lines(const std::string& directory) {
  std::vector<std::string> lines;
  for (std::string line : sorted_lines(peer("read " + directory).text)) {
    if (line.starts_with("transformer.")) line.erase(0, std::strlen("transformer."));
    if (line.find(".attn.bias ") == std::string::npos) lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST_F(HuggingFace, GptWeightsComeBackBitByBit) {
  for (const char* kind : {"F32 1 gpt2", "BF16 3 gpt2", "F32 2 gpt2-published"}) {
    const TemporaryDirectory dir;
    const std::string model = dir / "model";
    ASSERT_EQ(peer("write " + model + " " + kind).status, 0);
    const auto done = import_huggingface(model, dir / "in");
    ASSERT_TRUE(done.ok()) << kind << ": " << done.error().message;
    EXPECT_EQ(done->tensors, 28U);
    const bool bf16 = kind[0] == 'B';
    const std::string out = dir / "out";
    ASSERT_TRUE(export_huggingface(done->path, out, {.bf16 = bf16}).ok());
    EXPECT_EQ(gpt_lines(out), gpt_lines(model)) << kind;
    EXPECT_EQ(gpt_lines(out).size(), 28U);
    EXPECT_THAT(peer("read " + out).text, HasSubstr("transformer.h.1.attn.c_attn.weight "))
        << "exported as transformers saves a GPT2LMHeadModel";
    const auto config = nlohmann::json::parse(read_file(out + "/config.json").value());
    const auto original = nlohmann::json::parse(read_file(model + "/config.json").value());
    for (const char* key :
         {"model_type", "architectures", "n_embd", "n_head", "n_layer", "n_positions", "vocab_size",
          "activation_function", "layer_norm_epsilon"}) {
      EXPECT_EQ(config[key], original[key]) << key;
    }
    EXPECT_EQ(config["n_inner"], 48);
    EXPECT_EQ(config["tie_word_embeddings"], true) << "GPT2Config's default";
    ASSERT_TRUE(import_huggingface(out, dir / "again").ok());
    EXPECT_EQ(digest_checkpoint(dir / "again/step-0.g0").value(),
              digest_checkpoint(done->path).value());
  }
}

// Qwen2, Qwen3 and Mistral: the same tensors and the same config come back, but for keys that say
// nothing of the model.
TEST_F(HuggingFace, WeightsOfLlamasKindComeBackBitByBit) {
  for (const auto& [kind, tensors] :
       {std::pair{"qwen2", 26U}, std::pair{"qwen3", 24U}, std::pair{"mistral", 21U}}) {
    for (const bool bf16 : {false, true}) {
      const TemporaryDirectory dir;
      const std::string model = dir / "model";
      const std::string form = bf16 ? " BF16 3 " : " F32 1 ";
      ASSERT_EQ(peer("write " + model + form + kind).status, 0);
      const auto done = import_huggingface(model, dir / "in");
      ASSERT_TRUE(done.ok()) << kind << ": " << done.error().message;
      EXPECT_EQ(done->tensors, tensors) << kind;
      ASSERT_TRUE(verify_checkpoint(done->path)->problems.empty());
      const std::string out = dir / "out";
      ASSERT_TRUE(export_huggingface(done->path, out, {.bf16 = bf16}).ok());
      EXPECT_EQ(sorted_lines(peer("read " + out).text), sorted_lines(peer("read " + model).text));
      const auto config = nlohmann::json::parse(read_file(out + "/config.json").value());
      const auto original = nlohmann::json::parse(read_file(model + "/config.json").value());
      for (const auto& [key, value] : original.items()) {
        const bool unused = key == "max_window_layers" || key == "use_mrope" ||
                            (kind == std::string("qwen2") && key == "sliding_window");
        if (unused || value.is_null()) continue;
        EXPECT_EQ(config[key], value) << kind << " " << key;
      }
      ASSERT_TRUE(import_huggingface(out, dir / "again").ok());
      EXPECT_EQ(digest_checkpoint(dir / "again/step-0.g0").value(),
                digest_checkpoint(done->path).value());
    }
  }
}

TEST_F(HuggingFace, ExportAndImportAreInverse) {
  const std::string step_dir = save(dir_, 2);
  ASSERT_TRUE(export_huggingface(step_dir, dir_ / "a", {}).ok());
  ASSERT_TRUE(import_huggingface(dir_ / "a", dir_ / "in").ok());
  const std::string imported = dir_ / "in/step-0.g0";
  EXPECT_EQ(expected_lines(imported), expected_lines(step_dir));
  const Manifest manifest = read_manifest(imported).value();
  EXPECT_TRUE(manifest.weights_only);
  EXPECT_EQ(manifest.blocks, read_manifest(step_dir)->blocks);
  ASSERT_TRUE(export_huggingface(imported, dir_ / "b", {}).ok());
  for (const char* file : {"config.json", "model.safetensors"}) {
    EXPECT_EQ(read_file(dir_ / "a" + "/" + file).value(),
              read_file(dir_ / "b" + "/" + file).value());
  }
  EXPECT_TRUE(digest_checkpoint(imported).ok());
  EXPECT_EQ(latest_valid_checkpoint(dir_ / "in", {})->value().name(), "step-0.g0");
}

int64_t exported_length(const std::string& step_dir, const std::string& out) {
  EXPECT_TRUE(export_huggingface(step_dir, out, {}).ok());
  return nlohmann::json::parse(read_file(out + "/config.json").value())["max_position_embeddings"];
}

// What a model is made for is neither the product of its RoPE scaling nor what it is trained on.
TEST_F(HuggingFace, AnExportKeepsTheLengthThatTheModelIsMadeFor) {
  for (const char* name : {"llama3.1-8b", "llama3.2-1b"}) {
    EXPECT_EQ(model_preset(name)->max_positions, 131072) << name;
  }
  EXPECT_EQ(model_preset("llama3-8b")->max_positions, 8192);
  const SyntheticSave trained{dir_ / "saved", {40, 3}, 1, 1, 2, {}};
  Manifest manifest = synthetic_manifest(trained);
  manifest.model.rope_scaling.factor = 8;
  manifest.model.max_positions = 131072;
  ASSERT_LT(manifest.data.seq_len, 8192);
  const auto shard = write_synthetic_shard(trained, 0);
  ASSERT_TRUE(shard.ok()) << shard.error().message;
  ASSERT_TRUE(commit_checkpoint(trained.checkpoint_dir, manifest, {*shard}).ok());
  EXPECT_EQ(exported_length(dir_ / "saved/step-40.g3", dir_ / "a"), 131072);
  const auto done = import_huggingface(dir_ / "a", dir_ / "in");
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(read_manifest(done->path)->model.max_positions, 131072);
  EXPECT_EQ(exported_length(done->path, dir_ / "b"), 131072);
}

TEST_F(HuggingFace, ImportedMomentsAreZeroAtAnyWorldSize) {
  ASSERT_TRUE(export_huggingface(save(dir_, 1), dir_ / "a", {}).ok());
  ASSERT_TRUE(import_huggingface(dir_ / "a", dir_ / "in").ok());
  auto loader = CheckpointLoader::open(dir_ / "in/step-0.g0");
  ASSERT_TRUE(loader.ok());
  const auto& blocks = loader->manifest().blocks;
  for (int32_t rank = 0; rank < 3; ++rank) {
    for (size_t b = 0; b < blocks.size(); ++b) {
      const ElementRange range = shard_range(blocks[b].numel, rank, 3);
      std::vector<float> values(static_cast<size_t>(range.size()), -1.0F);
      const auto block = static_cast<int32_t>(b);
      ASSERT_TRUE(loader->load_range(block, StateKind::kExpAvgSq, range, values).ok());
      EXPECT_THAT(values, testing::Each(0.0F));
      ASSERT_TRUE(loader->load_range(block, StateKind::kParam, range, values).ok());
      for (int64_t i = range.begin; i < range.end; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i - range.begin)],
                  synthetic_value(blocks, block, StateKind::kParam, i, 1));
      }
    }
  }
}

// Tokenizer and special tokens are the model's: the import keeps them, and an export of it, or of a
// checkpoint beside those kept, has them again.
TEST_F(HuggingFace, TokenizerAndSpecialTokensSurvive) {
  const std::string trained = save(dir_, 1);
  ASSERT_TRUE(export_huggingface(trained, dir_ / "a", {}).ok());
  nlohmann::json config = nlohmann::json::parse(read_file(dir_ / "a/config.json").value());
  config["eos_token_id"] = {128001, 128009};
  config["bos_token_id"] = 128000;
  ASSERT_TRUE(write_file_atomic(dir_ / "a/config.json", config.dump()).ok());
  const std::map<std::string, std::string> files = {
      {"tokenizer.json", "{\"model\": 1}"},
      {"tokenizer_config.json", "{}"},
      {"generation_config.json", "{\"eos_token_id\": [128001, 128009]}"},
      {"chat_template.jinja", "{{ messages }}"}};
  for (const auto& [name, text] : files) {
    ASSERT_TRUE(write_file_atomic(dir_ / "a" + "/" + name, text).ok());
  }
  ASSERT_TRUE(write_file_atomic(dir_ / "a/README.md", "a model").ok());
  const auto imported = import_huggingface(dir_ / "a", dir_ / "in");
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  const auto expect_all = [&](const std::string& out) {
    for (const auto& [name, text] : files) EXPECT_EQ(read_file(out + "/" + name).value(), text);
    const auto now = nlohmann::json::parse(read_file(out + "/config.json").value());
    EXPECT_EQ(now["eos_token_id"], config["eos_token_id"]);
    EXPECT_EQ(now["bos_token_id"], 128000);
    EXPECT_FALSE(now.contains("pad_token_id"));
    EXPECT_FALSE(is_accessible(out + "/README.md"));
  };
  ASSERT_TRUE(export_huggingface(imported->path, dir_ / "b", {}).ok());
  expect_all(dir_ / "b");
  // As a job keeps them that began with this import.
  const std::string beside = trained.substr(0, trained.rfind('/')) + "/huggingface";
  ASSERT_TRUE(keep_model_files(find_model_files(imported->path).value(), beside).ok());
  ASSERT_TRUE(export_huggingface(trained, dir_ / "c", {}).ok());
  expect_all(dir_ / "c");
}

TEST_F(HuggingFace, NothingIsOverwritten) {
  const std::string step_dir = save(dir_, 1);
  ASSERT_TRUE(make_directories(dir_ / "empty").ok());
  ASSERT_TRUE(export_huggingface(step_dir, dir_ / "empty", {}).ok());
  const auto again = export_huggingface(step_dir, dir_ / "empty", {});
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
  ASSERT_TRUE(import_huggingface(dir_ / "empty", dir_ / "in").ok());
  EXPECT_EQ(import_huggingface(dir_ / "empty", dir_ / "in").error().code,
            ErrorCode::kAlreadyExists);
  ASSERT_TRUE(make_directories(dir_ / "job/generations").ok());
  EXPECT_THAT(import_huggingface(dir_ / "empty", dir_ / "job").error().message,
              HasSubstr("holds the checkpoints of a job"));
}

TEST_F(HuggingFace, ADamagedCheckpointIsNotExported) {
  const std::string step_dir = save(dir_, 2);
  const Manifest manifest = read_manifest(step_dir).value();
  for (const ShardEntry& entry : manifest.shards) {
    if (entry.kind != StateKind::kParam) continue;
    const std::string path = step_dir + "/" + manifest.files[static_cast<size_t>(entry.file)].file;
    const std::string good = read_file(path).value();
    std::string bad = good;
    bad[entry.offset + static_cast<uint64_t>(entry.range.size()) * 4 - 1] ^= 1;  // a gap, often
    ASSERT_TRUE(write_file_atomic(path, bad).ok());
    const auto refused = export_huggingface(step_dir, dir_ / "out/model", {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kDataLoss);
    EXPECT_THAT(refused.error().message, HasSubstr("at byte " + std::to_string(entry.offset)));
    EXPECT_FALSE(is_accessible(dir_ / "out")) << "nothing stays, half-written or empty";
    ASSERT_TRUE(write_file_atomic(path, good).ok());
  }
}

// A file of the independent writer with one thing changed, and what import says about it.
struct Unsuitable {
  const char* file;
  const char* from;
  const char* to;
  const char* complaint;
};

class Refuses : public testing::TestWithParam<Unsuitable> {};

constexpr const char* kData = "model.safetensors";
constexpr const char* kConfig = "config.json";
constexpr const char* kIndex = "model.safetensors.index.json";
INSTANTIATE_TEST_SUITE_P(
    Files, Refuses,
    testing::Values(
        Unsuitable{kData, R"("dtype": "BF16", "shape": [12])", R"("dtype":  "I16", "shape": [12])",
                   "has dtype I16, expected F32, BF16 or F16"},
        Unsuitable{kData, R"([20, 12])", R"([12, 20])", "has shape [12, 20], expected [20, 12]"},
        Unsuitable{kData, "model.norm.weight", "model.narm.weight",
                   "has tensor model.norm.weight [12]"},
        Unsuitable{kData, "0.mlp.up_proj", "1.mlp.up_proj",
                   "not a JSON object with distinct names"},
        Unsuitable{kData, "", "version https://git-lfs.github.com/spec/v1\n", "run `git lfs pull`"},
        Unsuitable{kData, R"("data_offsets": [0, )", R"("data_offsets": [2, )",
                   "do not fit dtype and shape; get it again"},
        Unsuitable{kConfig, R"("num_hidden_layers": 2)", R"("num_hidden_layers": 1)",
                   "has no place in a Llama model"},
        Unsuitable{kConfig, R"("hidden_size": 12)", R"("hidden_size": 14)", "has shape"},
        Unsuitable{kConfig, R"("hidden_size": 12)", R"("hidden_size": -1)", "hidden_size"},
        Unsuitable{kConfig, R"("hidden_size": 12)", R"("hidden_sizes": 12)", "hidden_size"},
        Unsuitable{kConfig, "\"llama\"", "\"phi3\"", "model_type: expected llama"},
        Unsuitable{kConfig, "LlamaForCausalLM", "LlamaForSequenceClassification", "architectures"},
        Unsuitable{kConfig, "\"silu\"", "\"gelu\"", "hidden_act: expected silu"},
        Unsuitable{kConfig, R"("rope_theta")", R"("attention_bias": true, "rope_theta")", "bias"},
        Unsuitable{kConfig, R"("rope_theta")", R"("head_dim": 7, "rope_theta")", "head_dim"},
        Unsuitable{kConfig, R"("rope_theta")", R"("head_dim": 8, "rope_theta")",
                   "has shape [12, 12], expected [16, 12]"},
        Unsuitable{kConfig, R"("rope_theta")",
                   R"("rope_scaling": {"type": "yarn", "factor": 4}, "rope_theta")", "yarn"},
        Unsuitable{kConfig, "{", "[", "config.json:1: not JSON at byte "},
        Unsuitable{kIndex, "{", "[", "index.json:1: not JSON at byte "},
        Unsuitable{kIndex, "weight_map", "wait_map", "has no weight_map; get it again"}));

TEST_P(Refuses, NamingTensorAndFile) {
  if (!is_accessible(kPython)) GTEST_SKIP() << kPython << " is absent";
  const TemporaryDirectory dir;
  const std::string name = GetParam().file;
  const char* files = name == kIndex ? " BF16 3" : " BF16 1";
  ASSERT_EQ(peer("write " + (dir / "model") + files).status, 0);
  const std::string path = dir / "model/" + name;
  std::string text = read_file(path).value();
  const size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::strlen(GetParam().from), GetParam().to);
  ASSERT_TRUE(write_file_atomic(path, text).ok());
  const auto refused = import_huggingface(dir / "model", dir / "in");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr(GetParam().complaint));
  EXPECT_THAT(refused.error().message, HasSubstr(dir / "model"));
  EXPECT_FALSE(is_accessible(dir / "in")) << "nothing was written";
}

TEST(HfConfigText, KeepsEverythingOfAModel) {
  HfConfig config{.model = *model_preset("llama3-8b"), .max_len = 131072, .dtype = "bfloat16"};
  config.model.preset.clear();
  config.model.tied_embeddings = true;
  config.model.rope_scaling = {8, 1, 4, 8192};
  const auto back = hf_config_from_text(to_hf_config_text(config), "config.json");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(to_hf_config_text(*back), to_hf_config_text(config));
  EXPECT_EQ(back->model.rope_scaling.factor, 8);
  EXPECT_EQ(back->model.kv_heads, 8);
}

// What a class of transformers takes where its config.json says nothing, and what we refuse.
TEST(HfConfigText, KnowsTheDefaultsOfLlamasKind) {
  const auto read = [](const char* type, const char* keys) {
    return hf_config_from_text(
        std::string(R"({"model_type": ")") + type +
            R"(", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
               "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300)" +
            keys + "}",
        "config.json");
  };
  const auto complaint = [&](const char* type, const char* keys) {
    const auto refused = read(type, keys);
    return refused.ok() ? "" : refused.error().message;
  };
  EXPECT_EQ(read("qwen3", "")->model.head_dim, 128);
  EXPECT_EQ(read("qwen3", R"(, "head_dim": 16)")->model.head_dim, 0) << "dim / heads";
  EXPECT_EQ(read("qwen2", "")->model.head_size(), 16);
  EXPECT_EQ(read("mistral", "")->model.sliding_window, 4096);
  EXPECT_EQ(read("mistral", R"(, "sliding_window": null)")->model.sliding_window, 0);
  EXPECT_EQ(read("mistral", R"(, "sliding_window": 7, "head_dim": 32)")->model.sliding_window, 7);
  EXPECT_EQ(read("llama", R"(, "sliding_window": 7)")->model.sliding_window, 0);
  EXPECT_EQ(complaint("qwen2", R"(, "head_dim": 32)"),
            "config.json: head_dim: expected hidden_size / num_attention_heads");
  for (const char* type : {"qwen2", "qwen3"}) {
    EXPECT_EQ(complaint(type, R"(, "use_sliding_window": true)"),
              "config.json: use_sliding_window: true is not supported");
    EXPECT_EQ(complaint(type, R"(, "layer_types": ["full_attention", "full_attention"])"), "");
    EXPECT_EQ(complaint(type, R"(, "layer_types": ["full_attention", "sliding_attention"])"),
              "config.json: layer_types: expected full_attention alone");
  }
  EXPECT_EQ(complaint("qwen3", R"(, "attention_bias": true)"),
            "config.json: attention_bias: biases are not supported");
  EXPECT_THAT(complaint("mistral", R"(, "rope_scaling": {"type": "yarn", "factor": 4})"),
              HasSubstr("expected default or llama3, found \"yarn\""));
}

TEST(HfConfigText, KeepsEverythingOfAGpt) {
  HfConfig config{.model = *model_preset("gpt3-3.6b"), .max_len = 2048, .dtype = "float32"};
  config.model.preset.clear();
  config.model.tied_embeddings = false;
  config.model.norm_eps = 1e-6;
  config.model.ffn = 100;
  const std::string text = to_hf_config_text(config);
  const auto back = hf_config_from_text(text, "config.json");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(to_hf_config_text(*back), text);
  EXPECT_EQ(model_layout(back->model), model_layout(config.model));
  EXPECT_EQ(back->model.norm_eps, 1e-6);
  EXPECT_EQ(back->max_len, 2048);
  const auto complaint = [&](const char* key, const nlohmann::json& value) {
    auto document = nlohmann::json::parse(text);
    document[key] = value;
    const auto refused = hf_config_from_text(document.dump(), "config.json");
    return refused.ok() ? "" : refused.error().message;
  };
  EXPECT_EQ(complaint("activation_function", "gelu"),
            "config.json: activation_function: expected gelu_new, found \"gelu\"");
  EXPECT_EQ(complaint("scale_attn_by_inverse_layer_idx", true),
            "config.json: scale_attn_by_inverse_layer_idx: true is not supported");
  EXPECT_EQ(complaint("scale_attn_weights", false),
            "config.json: scale_attn_weights: false is not supported");
  EXPECT_EQ(complaint("n_head", 5), "config.json: n_head: does not divide n_embd");
  EXPECT_THAT(complaint("n_positions", 0), HasSubstr("n_positions: impossible value"));
  EXPECT_THAT(complaint("architectures", {"GPT2Model"}), HasSubstr("architectures"));
  EXPECT_EQ(complaint("attn_pdrop", 0.1), "") << "of training only";
}

TEST(HfConfigText, ReadsTheFormOfTransformers5) {
  const auto config = hf_config_from_text(
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
          "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300,
          "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}, "dtype": "bfloat16"})",
      "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->model.rope_theta, 500000.0);
  EXPECT_EQ(config->model.rope_scaling.factor, 32);
  EXPECT_EQ(config->model.kv_heads, 4) << "as many as heads when absent";
  EXPECT_EQ(config->dtype, "bfloat16");
}

// Whatever a header says: an error, or tensors that tile the data.
TEST(SafetensorsHeader, MutationsAreRefusedOrHarmless) {
  const uint64_t data_bytes = 4 * 12 + 2 * 10;
  const std::string good = safetensors_header(
      {{"format", "pt"}}, {{"a", "F32", {3, 4}, 0, 48}, {"b", "BF16", {10}, 48, 68}});
  const auto original = nlohmann::json::parse(good.substr(8));
  int refused = 0;
  constexpr int kRounds = 5'000;
  for (int round = 0; round < kRounds; ++round) {
    Rng rng(static_cast<uint64_t>(round));
    std::string text;
    if (rng.chance(0.5)) {
      nlohmann::json document = original;
      for (uint64_t i = 0; i <= rng.below(3); ++i) mutate(document, rng);
      text = document.dump();
    } else {
      text = good.substr(8);
      for (uint64_t i = 0; i <= rng.below(4); ++i) {
        text[rng.below(text.size())] = static_cast<char>(rng.below(256));
      }
      if (rng.chance(0.2)) text.resize(rng.below(text.size()));
    }
    const auto found = parse_safetensors_header(text, data_bytes, "f");
    if (!found.ok()) {
      ++refused;
      continue;
    }
    uint64_t bytes = 0;
    for (const auto& [name, tensor] : *found) {
      ASSERT_LE(tensor.end, data_bytes);
      bytes += tensor.end - tensor.begin;
    }
    ASSERT_EQ(bytes, data_bytes);
  }
  EXPECT_GT(refused, kRounds / 2);
  EXPECT_LT(refused, kRounds);
}

TEST(SafetensorsHeader, ImpossibleFilesAreRefused) {
  const TemporaryDirectory dir;
  const auto complaint = [&](const std::string& bytes) {
    EXPECT_TRUE(write_file_atomic(dir / "f", bytes).ok());
    const auto file = SafetensorsFile::open(dir / "f");
    return file.ok() ? "" : file.error().message;
  };
  const std::string good = safetensors_header({}, {{"a", "F32", {1}, 0, 4}}) + "1234";
  EXPECT_EQ(complaint(good), "");
  for (const std::string& bad :
       {std::string(), std::string("short"), std::string(8, '\xff'), std::string(8, '\0'),
        std::string("\x01\0\0\0\0\0\0\0{", 9), good.substr(0, good.size() - 1), good + "5",
        std::string("\x40\x9c\0\0\0\0\0\0", 8) + "{\"a\":" + std::string(39'995, '[')}) {
    EXPECT_THAT(complaint(bad), HasSubstr("is not a sound safetensors file")) << bad.substr(0, 30);
  }
  EXPECT_THAT(SafetensorsFile::open(dir.path()).error().message, HasSubstr("is not a file"));
}

}  // namespace
}  // namespace hpctl
