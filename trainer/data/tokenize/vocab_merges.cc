// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/vocab_merges.h"

#include <string_view>

#include "common/base/json_file.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "trainer/data/tokenize/splitter.h"

namespace hpctl {
namespace {

using nlohmann::json;

constexpr JsonLimits kPairLimits{.bytes = 256U << 20, .values = 4'000'000};
constexpr size_t kShownOfPair = 200;
constexpr const char* kEndOfGpt2 = "<|endoftext|>";

struct PairClass {
  std::string_view name;  // in tokenizer_config.json
  std::string_view pattern;
  bool is_composed = false;  // NFC
};
constexpr PairClass kPairClasses[] = {{"GPT2Tokenizer", kGpt2Pattern, false},
                                      {"Qwen2Tokenizer", kQwenPattern, true}};

Error wrong_pair(const TokenizerFiles& files, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument, files.path + " cannot be used as a tokenizer: " +
                                                printable_line(what, kShownOfPair)};
}

// Empty where the file is not there.
Result<json> object_of(const std::string& text, const std::string& path) {
  if (text.empty()) return json::object();
  HP_TRY_ASSIGN(json document, json_of_file(text, path, kPairLimits));
  if (document.is_object()) return document;
  return Error{ErrorCode::kInvalidArgument, path + ": not a JSON object"};
}

Result<PairClass> class_of(const TokenizerFiles& files, const json& config) {
  const auto found = config.find("tokenizer_class");
  if (found == config.end() || found->is_null()) return kPairClasses[0];
  const std::string name = found->is_string() ? found->get<std::string>() : "";
  for (const PairClass& known : kPairClasses) {
    if (name == known.name || name == std::string(known.name) + "Fast") return known;
  }
  return wrong_pair(files, "tokenizer_config.json names the class " + json_text(*found) +
                               ", and how that cuts text is not known here; take the model's "
                               "tokenizer.json, which says it");
}

// "a b" of each line; the first may be "#version: 0.2".
json merges_of(std::string_view text) {
  json merges = json::array();
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    merges.push_back(std::string(line));
  }
  return merges;
}

// Those of tokenizer_config.json, else those of added_tokens.json; GPT-2's end is in its
// vocabulary.
Result<json> added_of(const TokenizerFiles& files, const json& config, const json& vocabulary) {
  json added = json::array();
  const auto is_added = [&](const std::string& text) {
    for (const json& token : added) {
      if (token.value("content", json()) == text) return true;
    }
    return false;
  };
  const json decoder = config.value("added_tokens_decoder", json::object());
  for (const auto& [id, token] : decoder.items()) {
    if (!token.is_object() || id.empty() || id.size() > 9 ||
        id.find_first_not_of("0123456789") != std::string::npos) {
      return wrong_pair(files, "tokenizer_config.json: added_tokens_decoder: " + id);
    }
    json entry = token;
    entry["id"] = std::stoi(id);
    added.push_back(std::move(entry));
  }
  HP_TRY_ASSIGN(const json more, object_of(files.added, "added_tokens.json beside " + files.path));
  for (const auto& [text, id] : more.items()) {
    if (!is_added(text)) added.push_back({{"content", text}, {"id", id}, {"special", true}});
  }
  if (!is_added(kEndOfGpt2) && vocabulary.contains(kEndOfGpt2)) {
    added.push_back({{"content", kEndOfGpt2}, {"id", vocabulary[kEndOfGpt2]}, {"special", true}});
  }
  return added;
}

}  // namespace

Result<std::string> tokenizer_json_of(const TokenizerFiles& files) {
  HP_TRY_ASSIGN(const json vocabulary, object_of(files.text, files.path));
  HP_TRY_ASSIGN(const json config,
                object_of(files.config, "tokenizer_config.json beside " + files.path));
  HP_TRY_ASSIGN(const PairClass how, class_of(files, config));
  HP_TRY_ASSIGN(const json added, added_of(files, config, vocabulary));
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", how.pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  json document = {
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges_of(files.merges)}}}};
  if (how.is_composed) document["normalizer"] = {{"type", "NFC"}};
  return json_text(document);
}

}  // namespace hpctl
