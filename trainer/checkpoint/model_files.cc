// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/model_files.h"

#include <array>
#include <string_view>

#include "common/base/file.h"
#include "common/base/json_file.h"
#include "common/base/json_text.h"

namespace hpctl {
namespace {

constexpr std::string_view kModelConfig = "config.json";
constexpr std::array<std::string_view, 11> kFilesBesideWeights = {"tokenizer.json",
                                                                  "tokenizer.model",
                                                                  "tiktoken.model",
                                                                  "tokenizer_config.json",
                                                                  "special_tokens_map.json",
                                                                  "vocab.json",
                                                                  "merges.txt",
                                                                  "added_tokens.json",
                                                                  "chat_template.jinja",
                                                                  "chat_template.json",
                                                                  "generation_config.json"};
constexpr std::array<const char*, 3> kSpecialIds = {"bos_token_id", "eos_token_id", "pad_token_id"};
constexpr size_t kMostBytesOfFile = 256U << 20;

Outcome copy_if_there(const std::string& from, const std::string& to, std::string_view name) {
  const std::string file = "/" + std::string(name);
  HP_TRY_ASSIGN(const auto text, read_file_if_there(from + file, kMostBytesOfFile));
  if (!text) return Ok{};
  HP_TRY(make_directories(to));
  return write_file_atomic(to + file, *text);
}

}  // namespace

Outcome keep_model_files(const std::string& from, const std::string& to) {
  for (const std::string_view name : kFilesBesideWeights) HP_TRY(copy_if_there(from, to, name));
  return copy_if_there(from, to, kModelConfig);
}

Result<std::string> find_model_files(const std::string& step_dir) {
  const std::string beside = step_dir.substr(0, step_dir.rfind('/') + 1);
  for (const std::string& directory :
       {step_dir + "/" + kModelFilesDirectory, beside + kModelFilesDirectory}) {
    HP_TRY_ASSIGN(const bool is_there, path_exists(directory));
    if (is_there) return directory;
  }
  return std::string();
}

Result<std::string> with_special_tokens(const std::string& config, const std::string& kept) {
  const std::string path = kept + "/" + std::string(kModelConfig);
  HP_TRY_ASSIGN(const auto text, read_file_if_there(path, kMostBytesOfFile));
  if (!text) return config;
  HP_TRY_ASSIGN(const nlohmann::json former, json_of_file(*text, path));
  auto document = nlohmann::ordered_json::parse(config);
  bool is_changed = false;
  for (const char* key : kSpecialIds) {
    const auto found = former.find(key);
    if (found == former.end() || document.contains(key)) continue;
    document[key] = *found;
    is_changed = true;
  }
  return is_changed ? json_text(document, {.indent = 2}) + "\n" : config;
}

Outcome write_model_files(const std::string& kept, const std::string& model_dir) {
  for (const std::string_view name : kFilesBesideWeights) {
    HP_TRY(copy_if_there(kept, model_dir, name));
  }
  return Ok{};
}

}  // namespace hpctl
