// SPDX-License-Identifier: Apache-2.0
// Hugging Face's tokenizer.json, as far as BPE needs it. On bytes:
//
//   added_tokens    found in the text first, with lstrip, rstrip and single_word (added_tokens.h);
//                   those that are `normalized` are found once the rest is in its normal form
//   normalizer      null, NFC, NFD, NFKC, NFKD, or a Sequence of them, which may be empty
//   pre_tokenizer   ByteLevel, or a Sequence of Split (Regex or String, Isolated), Digits and one
//                   ByteLevel, last
//   model           BPE: vocab, merges (as "a b" or ["a", "b"]), ignore_merges; dropout, unk_token
//                   and affixes are refused
//   post_processor  ignored: it adds tokens around a text for inference
//
// With byte_fallback it is BPE on characters (character_bpe.h): the normalizers Prepend, Replace of
// a String and those above; no pre_tokenizer, Metaspace, or Split by a String (MergedWithPrevious).
//
// The file is untrusted: every id, piece and pattern is checked, and an unknown part is an error
// with the file's name.
#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/base/json_file.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "trainer/data/tokenize/bpe_tokenizer.h"
#include "trainer/data/tokenize/character_bpe.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {
namespace {

using nlohmann::json;

constexpr int64_t kMaxId = 1 << 24;
constexpr size_t kMaxTokenizerBytes = 1U << 30;
constexpr size_t kShownBytes = 500;  // of what is wrong, which quotes the file

Error wrong(const std::string& what) { return Error{ErrorCode::kInvalidArgument, what}; }

// The character that stands for each byte in vocab and merges: printable Latin-1 is itself, the
// other bytes are, in order, U+0100 and up (bytes_to_unicode of GPT-2's encoder.py).
const std::unordered_map<uint32_t, char>& bytes_by_character() {
  static const std::unordered_map<uint32_t, char> table = [] {
    std::unordered_map<uint32_t, char> made;
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      made[itself ? b : next++] = static_cast<char>(b);
    }
    return made;
  }();
  return table;
}

// `text` is UTF-8 (the JSON parser made sure); only one and two byte sequences can stand for bytes.
Result<std::string> bytes_of(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    auto character = static_cast<uint32_t>(static_cast<uint8_t>(text[i]));
    if (character >= 0xc0 && character < 0xe0 && i + 1 < text.size()) {
      character = (character & 0x1f) << 6 | (static_cast<uint8_t>(text[++i]) & 0x3f);
    }
    const auto found = bytes_by_character().find(character);
    if (found == bytes_by_character().end()) {
      return wrong("the token \"" + text + "\" does not spell bytes; only byte-level BPE is known");
    }
    bytes += found->second;
  }
  return bytes;
}

bool is_set(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null() || *found == false || *found == 0.0) return false;
  return !found->is_string() || !found->get_ref<const std::string&>().empty();
}

Result<int32_t> id_of(const json& value) {
  const auto id = whole_number<int32_t>(value);
  if (!id || *id < 0 || *id >= kMaxId) {
    return wrong("the id " + json_text(value) + " is not a number from 0 to 2^24 - 1");
  }
  return *id;
}

template <typename Parts>
Outcome read_added(const json& document, Parts& parts) {
  const auto list = document.find("added_tokens");
  if (list == document.end() || list->is_null()) return Ok{};
  for (const json& token : *list) {
    AddedToken added;
    added.text = token.at("content").get<std::string>();
    HP_TRY_ASSIGN(added.id, id_of(token.at("id")));
    if (added.text.empty()) return wrong("an added token is empty");
    added.is_word = token.value("single_word", false);
    added.takes_left = token.value("lstrip", false);
    added.takes_right = token.value("rstrip", false);
    added.is_normalized = token.value("normalized", !token.value("special", false));
    parts.vocabulary = std::max(parts.vocabulary, static_cast<uint64_t>(added.id) + 1);
    parts.added.push_back(std::move(added));
  }
  return Ok{};
}

std::optional<NormalForm> form_of(const std::string& name) {
  if (name == "NFC") return NormalForm::kNfc;
  if (name == "NFD") return NormalForm::kNfd;
  if (name == "NFKC") return NormalForm::kNfkc;
  if (name == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

Outcome add_normalizer(const json& step, BpeParts& parts) {
  const auto type = step.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const json& inner : step.at("normalizers")) HP_TRY(add_normalizer(inner, parts));
    return Ok{};
  }
  const std::optional<NormalForm> form = form_of(type);
  if (!form) {
    return wrong("normalizer \"" + type +
                 "\" is not known; NFC, NFD, NFKC, NFKD and a Sequence of them are");
  }
  parts.forms.push_back(*form);
  return Ok{};
}

Outcome read_normalizer(const json& document, BpeParts& parts) {
  return is_set(document, "normalizer") ? add_normalizer(document.at("normalizer"), parts)
                                        : Outcome(Ok{});
}

Outcome add_pattern(const std::string& pattern, BpeParts& parts) {
  HP_TRY_ASSIGN(SplitPattern compiled, SplitPattern::compile(pattern));
  parts.patterns.push_back(std::move(compiled));
  return Ok{};
}

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

Outcome read_split(const json& split, BpeParts& parts) {
  if (split.at("behavior") != "Isolated" || is_set(split, "invert")) {
    return wrong("pre_tokenizer Split: only the behavior Isolated is known");
  }
  const json& pattern = split.at("pattern");
  if (pattern.contains("String")) {
    return add_pattern(literal(pattern.at("String").get<std::string>()), parts);
  }
  if (!pattern.contains("Regex")) return wrong("pre_tokenizer Split: Regex and String are known");
  return add_pattern(pattern.at("Regex").get<std::string>(), parts);
}

Outcome read_pre_tokenizer(const json& document, BpeParts& parts) {
  const json pre = document.value("pre_tokenizer", json());
  if (!pre.is_object()) return wrong("no pre_tokenizer; only byte-level BPE is known");
  json steps = json::array({pre});
  if (pre.at("type") == "Sequence") steps = pre.at("pretokenizers");
  bool byte_level = false;
  for (const json& step : steps) {
    if (byte_level) return wrong("pre_tokenizer: ByteLevel is not the last");
    if (step.at("type") == "Split") {
      HP_TRY(read_split(step, parts));
      continue;
    }
    if (step.at("type") == "Digits") {
      const bool each_alone = step.value("individual_digits", false);
      HP_TRY(add_pattern(each_alone ? R"(\p{N})" : R"(\p{N}+)", parts));
      continue;
    }
    if (step.at("type") != "ByteLevel") {
      return wrong("pre_tokenizer " + json_text(step.at("type")) +
                   " is not known; Split, Digits and ByteLevel are");
    }
    byte_level = true;
    parts.add_prefix_space = step.value("add_prefix_space", true);
    if (parts.add_prefix_space && !parts.patterns.empty()) {
      return wrong("pre_tokenizer: add_prefix_space behind a Split is not known");
    }
    if (step.value("use_regex", true)) HP_TRY(add_pattern(std::string(kGpt2Pattern), parts));
  }
  return byte_level ? Outcome(Ok{}) : wrong("pre_tokenizer: no ByteLevel");
}

// One id, one text: which of two texts a model has learnt, nobody could tell.
class IdsInUse {
 public:
  Outcome take(int32_t id, const std::string& text) {
    const auto [place, is_new] = texts_.emplace(id, text);
    if (is_new || place->second == text) return Ok{};
    return wrong("the tokens \"" + place->second + "\" and \"" + text + "\" have one id, " +
                 std::to_string(id));
  }

 private:
  std::unordered_map<int32_t, std::string> texts_;
};

// Calls `take` with text and id of each token of vocab, and with whether it is an added one as
// well.
template <typename Parts, typename Take>
Outcome read_vocabulary(const json& model, Parts& parts, const Take& take) {
  std::map<std::string, int32_t> added;
  IdsInUse ids;
  for (const AddedToken& token : parts.added) {
    HP_TRY(ids.take(token.id, token.text));
    const auto [known, is_new] = added.emplace(token.text, token.id);
    if (is_new || known->second == token.id) continue;
    return wrong("the added token \"" + token.text + "\" has two ids, " +
                 std::to_string(known->second) + " and " + std::to_string(token.id));
  }
  for (const auto& [text, value] : model.at("vocab").items()) {
    HP_TRY_ASSIGN(const int32_t id, id_of(value));
    HP_TRY(ids.take(id, text));
    parts.vocabulary = std::max(parts.vocabulary, static_cast<uint64_t>(id) + 1);
    const auto known = added.find(text);
    if (known != added.end() && known->second != id) {
      return wrong("the token \"" + text + "\" is " + std::to_string(id) +
                   " in vocab, and an added token with the id " + std::to_string(known->second));
    }
    HP_TRY(take(text, id, known != added.end()));
  }
  if (parts.tokens.empty()) return wrong("an empty vocabulary");
  return Ok{};
}

Outcome read_bytes_vocabulary(const json& model, BpeParts& parts) {
  return read_vocabulary(model, parts,
                         [&](const std::string& text, int32_t id, bool is_added) -> Outcome {
                           if (is_added) return Ok{};  // it need not spell bytes
                           HP_TRY_ASSIGN(std::string bytes, bytes_of(text));
                           if (!bytes.empty()) parts.tokens.emplace(std::move(bytes), id);
                           return Ok{};
                         });
}

Result<std::pair<std::string, std::string>> merge_of(const json& merge) {
  if (merge.is_array() && merge.size() == 2) {
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  const auto text = merge.get<std::string>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    return wrong("the merge \"" + text + "\" is not two tokens");
  }
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

// `spelled`: the key of parts.tokens that stands for a token's text.
template <typename Parts, typename Spelled>
Outcome read_merges(const json& model, Parts& parts, const Spelled& spelled) {
  if (!model.at("merges").is_array()) {
    return wrong("merges is " + std::string(model.at("merges").type_name()) +
                 "; a list is needed, for without merges every byte would be a token");
  }
  for (const json& merge : model.at("merges")) {
    HP_TRY_ASSIGN(const auto texts, merge_of(merge));
    HP_TRY_ASSIGN(const std::string left, spelled(texts.first));
    HP_TRY_ASSIGN(const std::string right, spelled(texts.second));
    const auto end = parts.tokens.end();
    const auto a = parts.tokens.find(left);
    const auto b = parts.tokens.find(right);
    const auto both = parts.tokens.find(left + right);
    if (a == end || b == end || both == end) {
      return wrong("the merge \"" + texts.first + " " + texts.second +
                   "\" needs a token that the vocabulary lacks");
    }
    parts.merges.push_back(BpeMerge{a->second, b->second, both->second});
  }
  return Ok{};
}

Outcome check_model(const json& model, std::initializer_list<const char*> unknown) {
  // Files of old releases of the library leave the type out.
  if (model.value("type", "BPE") != "BPE") {
    return wrong("model " + json_text(model.at("type")) + " is not known; BPE is");
  }
  for (const char* key : unknown) {
    if (is_set(model, key)) return wrong("model: " + std::string(key) + " is not known");
  }
  return Ok{};
}

Outcome read_model(const json& document, BpeParts& parts) {
  const json& model = document.at("model");
  HP_TRY(check_model(model, {"dropout", "unk_token", "byte_fallback", "continuing_subword_prefix",
                             "end_of_word_suffix"}));
  parts.ignore_merges = model.value("ignore_merges", false);
  HP_TRY(read_bytes_vocabulary(model, parts));
  return read_merges(model, parts, bytes_of);
}

// ---- BPE on characters -------------------------------------------------------------------------

bool is_of_characters(const json& document) {
  const auto model = document.find("model");
  return model != document.end() && model->is_object() && is_set(*model, "byte_fallback");
}

Outcome add_text_step(const json& step, CharacterParts& parts) {
  const auto type = step.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const json& inner : step.at("normalizers")) HP_TRY(add_text_step(inner, parts));
    return Ok{};
  }
  TextStep added;
  added.form = form_of(type);
  if (type == "Prepend") {
    added.to = step.at("prepend").get<std::string>();
  } else if (type == "Replace" && step.at("pattern").contains("String")) {
    added.from = step.at("pattern").at("String").get<std::string>();
    added.to = step.at("content").get<std::string>();
    if (added.from.empty()) return wrong("normalizer Replace: an empty pattern");
  } else if (!added.form) {
    return wrong("normalizer \"" + type +
                 "\" is not known with byte_fallback; Prepend, Replace of a String, NFC, NFD, NFKC "
                 "and NFKD are");
  }
  parts.steps.push_back(std::move(added));
  return Ok{};
}

Outcome read_text_steps(const json& document, CharacterParts& parts) {
  return is_set(document, "normalizer") ? add_text_step(document.at("normalizer"), parts)
                                        : Outcome(Ok{});
}

Outcome read_metaspace(const json& pre, CharacterParts& parts) {
  const bool always = pre.value("add_prefix_space", true);
  const std::string scheme = pre.value("prepend_scheme", always ? "always" : "never");
  Metaspace metaspace;
  metaspace.mark = pre.at("replacement").get<std::string>();
  metaspace.splits = pre.value("split", true);
  if (scheme == "first") metaspace.prepend = Metaspace::Prepend::kFirst;
  if (scheme == "never") metaspace.prepend = Metaspace::Prepend::kNever;
  const bool is_known = scheme == "always" || scheme == "first" || scheme == "never";
  if (!is_known || metaspace.mark.empty()) return wrong("pre_tokenizer Metaspace: " + scheme);
  parts.metaspace = std::move(metaspace);
  return Ok{};
}

Outcome read_character_pre_tokenizer(const json& document, CharacterParts& parts) {
  const json pre = document.value("pre_tokenizer", json());
  if (pre.is_null()) return Ok{};
  const auto type = pre.at("type").get<std::string>();
  if (type == "Metaspace") return read_metaspace(pre, parts);
  if (type == "Split" && pre.at("pattern").contains("String") &&
      pre.at("behavior") == "MergedWithPrevious" && !is_set(pre, "invert")) {
    parts.split_behind = pre.at("pattern").at("String").get<std::string>();
    return Ok{};
  }
  return wrong("pre_tokenizer \"" + type +
               "\" is not known with byte_fallback; Metaspace, and Split by a String merged with "
               "what is before it, are");
}

Outcome read_byte_tokens(CharacterParts& parts) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (size_t b = 0; b < parts.bytes.size(); ++b) {
    const std::string name = std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">";
    const auto found = parts.tokens.find(name);
    if (found == parts.tokens.end()) return wrong("byte_fallback without the token " + name);
    parts.bytes.at(b) = found->second;
  }
  return Ok{};
}

// No character is unknown, as each byte is a token: unk_token and fuse_unk change nothing.
Outcome read_character_model(const json& document, CharacterParts& parts) {
  const json& model = document.at("model");
  HP_TRY(check_model(model, {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}));
  parts.ignore_merges = model.value("ignore_merges", false);
  HP_TRY(read_vocabulary(model, parts, [&](const std::string& text, int32_t id, bool) -> Outcome {
    parts.tokens.emplace(text, id);
    return Ok{};
  }));
  HP_TRY(read_byte_tokens(parts));
  return read_merges(model, parts,
                     [](const std::string& text) -> Result<std::string> { return text; });
}

template <typename Parts>
using Reader = Outcome (*)(const json&, Parts&);

// Each reads what is under one key.
template <typename Parts>
Result<Parts> read_parts(const json& document,
                         std::initializer_list<std::pair<const char*, Reader<Parts>>> readers) {
  Parts parts;
  for (const auto& [key, read] : readers) {
    try {
      HP_TRY(read(document, parts));
    } catch (const json::exception& e) {
      return wrong(std::string(key) + ": " + problem_in(document, e) +
                   "; take the tokenizer.json that the model was published with");
    }
  }
  return parts;
}

Result<std::unique_ptr<Tokenizer>> tokenizer_of(const json& document) {
  if (!document.is_object()) return wrong("not an object");
  if (is_of_characters(document)) {
    HP_TRY_ASSIGN(
        CharacterParts parts,
        read_parts<CharacterParts>(document, {{"added_tokens", read_added<CharacterParts>},
                                              {"normalizer", read_text_steps},
                                              {"pre_tokenizer", read_character_pre_tokenizer},
                                              {"model", read_character_model}}));
    return make_character_tokenizer(std::move(parts));
  }
  HP_TRY_ASSIGN(BpeParts parts,
                read_parts<BpeParts>(document, {{"added_tokens", read_added<BpeParts>},
                                                {"normalizer", read_normalizer},
                                                {"pre_tokenizer", read_pre_tokenizer},
                                                {"model", read_model}}));
  return make_bpe_tokenizer(std::move(parts));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_tokenizer_json(const std::string& text,
                                                        const std::string& path) {
  HP_TRY_ASSIGN(const json document,
                json_of_file(text, path, {.bytes = kMaxTokenizerBytes, .values = 32'000'000}));
  auto tokenizer = tokenizer_of(document);
  if (tokenizer.ok()) return tokenizer;
  return Error{ErrorCode::kInvalidArgument,
               path + " cannot be used as a tokenizer: " +
                   printable_line(tokenizer.error().message, kShownBytes)};
}

}  // namespace hpctl
