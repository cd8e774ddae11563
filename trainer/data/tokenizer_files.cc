// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenizer_files.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/base/checksum.h"
#include "common/base/file.h"

namespace hpctl {
namespace {

constexpr size_t kMostTokenizerBytes = 256U << 20;
constexpr std::string_view kVocabulary = "vocab.json";
constexpr std::string_view kMerges = "merges.txt";

// OWNER/MODEL, as the Hugging Face Hub names models.
bool is_name_of_hub(const std::string& name) {
  return !name.starts_with('/') && !name.starts_with('.') &&
         std::count(name.begin(), name.end(), '/') == 1 && !name.ends_with(".json") &&
         !name.ends_with(".model");
}

Error with_words_on_tokenizers(Error error, const std::string& name) {
  const std::string model = is_name_of_hub(name) ? name : "OWNER/MODEL";
  error.message +=
      "; a tokenizer is \"byte\", or a model's file tokenizer.json, vocab.json (with merges.txt) "
      "or "
      "tokenizer.model. For a model of the Hugging Face Hub run `hf download " +
      model + " tokenizer.json --local-dir DIR` and name DIR/tokenizer.json";
  return error;
}

Result<std::string> read_if_there(const std::string& path) {
  HP_TRY_ASSIGN(const auto text, read_file_if_there(path, kMostTokenizerBytes));
  return text.value_or("");
}

// Lengths first: no two sets of files are hashed alike.
std::string hash_of(const TokenizerFiles& files) {
  Sha256 sha;
  if (files.is_pair) {
    for (const std::string* text : {&files.text, &files.merges, &files.config, &files.added}) {
      sha.update(std::to_string(text->size()) + "\n");
      sha.update(*text);
    }
  } else {
    sha.update(files.text);
  }
  return sha.hex_digest();
}

}  // namespace

Result<TokenizerFiles> read_tokenizer_files(const std::string& name) {
  TokenizerFiles files;
  files.path = name;
  std::string stem = name;  // "gpt2-" of "gpt2-vocab.json"
  for (const std::string_view end : {kVocabulary, kMerges}) {
    if (!name.ends_with(end)) continue;
    files.is_pair = true;
    stem.resize(name.size() - end.size());
    files.path = stem + std::string(kVocabulary);
  }
  auto text = read_file(files.path, kMostTokenizerBytes);
  if (!text.ok()) return with_words_on_tokenizers(text.error(), name);
  files.text = std::move(text).value();
  if (files.is_pair) {
    const std::string directory = name.substr(0, name.rfind('/') + 1);  // "" = the current one
    auto merges = read_file(stem + std::string(kMerges), kMostTokenizerBytes);
    if (!merges.ok()) return with_words_on_tokenizers(merges.error(), name);
    files.merges = std::move(merges).value();
    HP_TRY_ASSIGN(files.config, read_if_there(directory + "tokenizer_config.json"));
    HP_TRY_ASSIGN(files.added, read_if_there(directory + "added_tokens.json"));
  }
  files.hash = hash_of(files);
  return files;
}

}  // namespace hpctl
