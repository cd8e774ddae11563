// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/text_rules_json.h"

#include <array>
#include <cctype>
#include <optional>
#include <string>
#include <utility>

#include "common/base/json_file.h"
#include "common/base/json_text.h"

namespace hpctl {
namespace {

using nlohmann::json;

Error wrong_rule(const std::string& what) { return Error{ErrorCode::kInvalidArgument, what}; }

// A pattern that matches this text alone.
std::string literal(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && std::isalnum(byte) == 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// {"Regex": PATTERN} or {"String": TEXT}.
Result<SplitPattern> pattern_of(const json& pattern, const std::string& where) {
  if (pattern.contains("String")) {
    return SplitPattern::compile(literal(pattern.at("String").get<std::string>()));
  }
  if (!pattern.contains("Regex")) return wrong_rule(where + ": Regex and String are known");
  return SplitPattern::compile(pattern.at("Regex").get<std::string>());
}

// ---- normalizer --------------------------------------------------------------------------------

std::optional<NormalForm> form_of(const std::string& name) {
  if (name == "NFC") return NormalForm::kNfc;
  if (name == "NFD") return NormalForm::kNfd;
  if (name == "NFKC") return NormalForm::kNfkc;
  if (name == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

Result<TextStep> replacement(const json& step) {
  const json& pattern = step.at("pattern");
  auto to = step.at("content").get<std::string>();
  if (pattern.contains("String")) {
    auto from = pattern.at("String").get<std::string>();
    if (from.empty()) return wrong_rule("normalizer Replace: an empty pattern");
    return TextStep(ReplaceText{std::move(from), std::move(to)});
  }
  HP_TRY_ASSIGN(SplitPattern compiled, pattern_of(pattern, "normalizer Replace"));
  return TextStep(ReplaceMatches{std::move(compiled), std::move(to)});
}

Result<TextStep> text_step(const std::string& type, const json& step) {
  if (const auto form = form_of(type)) return TextStep(*form);
  if (type == "Lowercase") return TextStep(Lowercase());
  if (type == "Strip") {
    return TextStep(StripEnds{step.value("strip_left", true), step.value("strip_right", true)});
  }
  if (type == "StripAccents") return TextStep(StripAccents());
  if (type == "Prepend") return TextStep(Prepend{step.at("prepend").get<std::string>()});
  if (type == "Replace") return replacement(step);
  return wrong_rule(
      "normalizer \"" + type +
      "\" is not known; NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, "
      "Replace and a Sequence of them are");
}

Outcome add_normalizer(const json& step, std::vector<TextStep>& steps) {
  const auto type = step.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const json& inner : step.at("normalizers")) HP_TRY(add_normalizer(inner, steps));
    return Ok{};
  }
  HP_TRY_ASSIGN(TextStep added, text_step(type, step));
  steps.push_back(std::move(added));
  return Ok{};
}

// ---- pre_tokenizer -----------------------------------------------------------------------------

Result<CutBehavior> behavior_of(const json& name) {
  constexpr std::array<std::pair<const char*, CutBehavior>, 5> kNames = {
      {{"Isolated", CutBehavior::kIsolated},
       {"Removed", CutBehavior::kRemoved},
       {"Contiguous", CutBehavior::kContiguous},
       {"MergedWithPrevious", CutBehavior::kMergedWithPrevious},
       {"MergedWithNext", CutBehavior::kMergedWithNext}}};
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return wrong_rule("pre_tokenizer: the behavior " + json_text(name) +
                    " is not known; Isolated, Removed, Contiguous, MergedWithPrevious and "
                    "MergedWithNext are");
}

Outcome add_cut(const std::string& pattern, CutBehavior behavior, PreTokenizerParts& parts,
                bool is_inverted = false) {
  HP_TRY_ASSIGN(SplitPattern compiled, SplitPattern::compile(pattern));
  parts.steps.emplace_back(Cut{std::move(compiled), behavior, is_inverted});
  return Ok{};
}

Outcome add_split(const json& step, PreTokenizerParts& parts) {
  HP_TRY_ASSIGN(SplitPattern pattern, pattern_of(step.at("pattern"), "pre_tokenizer Split"));
  HP_TRY_ASSIGN(const CutBehavior behavior, behavior_of(step.at("behavior")));
  parts.steps.emplace_back(Cut{std::move(pattern), behavior, step.value("invert", false)});
  return Ok{};
}

Outcome add_metaspace(const json& step, PreTokenizerParts& parts) {
  const bool always = step.value("add_prefix_space", true);
  const std::string scheme = step.value("prepend_scheme", always ? "always" : "never");
  Metaspace metaspace;
  metaspace.mark = step.at("replacement").get<std::string>();
  metaspace.splits = step.value("split", true);
  if (scheme == "first") metaspace.prepend = Metaspace::Prepend::kFirst;
  if (scheme == "never") metaspace.prepend = Metaspace::Prepend::kNever;
  const bool is_known = scheme == "always" || scheme == "first" || scheme == "never";
  if (!is_known || metaspace.mark.empty()) return wrong_rule("pre_tokenizer Metaspace: " + scheme);
  parts.steps.emplace_back(std::move(metaspace));
  return Ok{};
}

Outcome add_byte_level(const json& step, PreTokenizerParts& parts) {
  parts.is_byte_level = true;
  if (step.value("add_prefix_space", true)) parts.steps.emplace_back(PrefixSpace());
  if (!step.value("use_regex", true)) return Ok{};
  return add_cut(std::string(kGpt2Pattern), CutBehavior::kIsolated, parts);
}

Outcome add_pre_tokenizer(const json& step, PreTokenizerParts& parts) {
  const auto type = step.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const json& inner : step.at("pretokenizers")) HP_TRY(add_pre_tokenizer(inner, parts));
    return Ok{};
  }
  if (parts.is_byte_level) return wrong_rule("pre_tokenizer: ByteLevel is not the last");
  if (type == "Split") return add_split(step, parts);
  if (type == "Metaspace") return add_metaspace(step, parts);
  if (type == "ByteLevel") return add_byte_level(step, parts);
  if (type == "Digits") {
    const bool each_alone = step.value("individual_digits", false);
    return add_cut(R"(\p{N})", each_alone ? CutBehavior::kIsolated : CutBehavior::kContiguous,
                   parts);
  }
  if (type == "Punctuation") {
    HP_TRY_ASSIGN(const CutBehavior behavior, behavior_of(step.value("behavior", "Isolated")));
    return add_cut(R"([\p{P}$+<=>^`|~])", behavior, parts);
  }
  if (type == "Whitespace") {
    // \w of Rust's regex, which is not Oniguruma's.
    const std::string word = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";
    return add_cut("[" + word + "]+|[^" + word + "\\s]+", CutBehavior::kRemoved, parts, true);
  }
  if (type == "WhitespaceSplit") return add_cut(R"(\s)", CutBehavior::kRemoved, parts);
  if (type == "CharDelimiterSplit") {
    return add_cut(literal(step.at("delimiter").get<std::string>()), CutBehavior::kRemoved, parts);
  }
  return wrong_rule("pre_tokenizer \"" + type +
                    "\" is not known; Split, Digits, Punctuation, Whitespace, WhitespaceSplit, "
                    "CharDelimiterSplit, Metaspace, ByteLevel and a Sequence of them are");
}

}  // namespace

Result<int32_t> token_id(const json& value) {
  const auto id = whole_number<int32_t>(value);
  if (!id || *id < 0 || *id >= kMaxTokenId) {
    return wrong_rule("the id " + json_text(value) + " is not a number from 0 to 2^24 - 1");
  }
  return *id;
}

bool is_set(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null() || *found == false || *found == 0.0) return false;
  return !found->is_string() || !found->get_ref<const std::string&>().empty();
}

Result<std::vector<AddedToken>> read_added_tokens(const json& document) {
  std::vector<AddedToken> tokens;
  const auto list = document.find("added_tokens");
  if (list == document.end() || list->is_null()) return tokens;
  for (const json& token : *list) {
    AddedToken added;
    added.text = token.at("content").get<std::string>();
    HP_TRY_ASSIGN(added.id, token_id(token.at("id")));
    if (added.text.empty()) return wrong_rule("an added token is empty");
    added.is_word = token.value("single_word", false);
    added.takes_left = token.value("lstrip", false);
    added.takes_right = token.value("rstrip", false);
    added.is_normalized = token.value("normalized", !token.value("special", false));
    tokens.push_back(std::move(added));
  }
  return tokens;
}

Result<std::vector<TextStep>> read_normalizer(const json& document) {
  std::vector<TextStep> steps;
  if (is_set(document, "normalizer")) HP_TRY(add_normalizer(document.at("normalizer"), steps));
  return steps;
}

Result<PreTokenizerParts> read_pre_tokenizer(const json& document) {
  PreTokenizerParts parts;
  if (is_set(document, "pre_tokenizer")) {
    HP_TRY(add_pre_tokenizer(document.at("pre_tokenizer"), parts));
  }
  return parts;
}

}  // namespace hpctl
