// SPDX-License-Identifier: Apache-2.0
// Hugging Face's tokenizer.json, as far as BPE needs it:
//
//   model           BPE: vocab, merges (as "a b" or ["a", "b"]), ignore_merges; dropout and affixes
//                   are refused. On bytes if the pre_tokenizer ends with ByteLevel, and on
//                   characters otherwise, with byte_fallback, unk_token and fuse_unk
//   post_processor  ignored: it adds tokens around a text for inference
//   other keys      text_rules_json.h
//
// The file is untrusted: every id, piece and pattern is checked, and an unknown part is an error
// with the file's name.
#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/base/json_file.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "trainer/data/tokenize/bpe_tokenizer.h"
#include "trainer/data/tokenize/character_bpe.h"
#include "trainer/data/tokenize/text_rules_json.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {
namespace {

using nlohmann::json;

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
  for (const AddedToken& token : parts.text.added) {
    parts.vocabulary = std::max(parts.vocabulary, static_cast<uint64_t>(token.id) + 1);
    HP_TRY(ids.take(token.id, token.text));
    const auto [known, is_new] = added.emplace(token.text, token.id);
    if (is_new || known->second == token.id) continue;
    return wrong("the added token \"" + token.text + "\" has two ids, " +
                 std::to_string(known->second) + " and " + std::to_string(token.id));
  }
  for (const auto& [text, value] : model.at("vocab").items()) {
    HP_TRY_ASSIGN(const int32_t id, token_id(value));
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

Outcome check_model(const json& model) {
  // Files of old releases of the library leave the type out.
  if (model.value("type", "BPE") != "BPE") {
    return wrong("model " + json_text(model.at("type")) + " is not known; BPE is");
  }
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (is_set(model, key)) return wrong("model: " + std::string(key) + " is not known");
  }
  return Ok{};
}

bool has_all_bytes(const TokensByBytes& tokens) {
  for (int b = 0; b < 256; ++b) {
    if (!tokens.contains(std::string(1, static_cast<char>(b)))) return false;
  }
  return true;
}

Outcome read_model(const json& document, BpeParts& parts) {
  const json& model = document.at("model");
  HP_TRY(check_model(model));
  parts.ignore_merges = model.value("ignore_merges", false);
  HP_TRY(read_bytes_vocabulary(model, parts));
  // Where each byte is a token, nothing is unknown.
  for (const char* key : {"unk_token", "byte_fallback"}) {
    if (!is_set(model, key) || has_all_bytes(parts.tokens)) continue;
    return wrong("model: " + std::string(key) +
                 " with ByteLevel is known only where each of the 256 bytes is a token");
  }
  return read_merges(model, parts, bytes_of);
}

Outcome read_byte_tokens(CharacterParts& parts) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  parts.bytes.emplace();
  for (size_t b = 0; b < parts.bytes->size(); ++b) {
    const std::string name = std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">";
    const auto found = parts.tokens.find(name);
    if (found == parts.tokens.end()) return wrong("byte_fallback without the token " + name);
    parts.bytes->at(b) = found->second;
  }
  return Ok{};
}

Outcome read_character_model(const json& document, CharacterParts& parts) {
  const json& model = document.at("model");
  HP_TRY(check_model(model));
  parts.ignore_merges = model.value("ignore_merges", false);
  parts.fuses_unknown = model.value("fuse_unk", false);
  HP_TRY(read_vocabulary(model, parts, [&](const std::string& text, int32_t id, bool) -> Outcome {
    parts.tokens.emplace(text, id);
    return Ok{};
  }));
  if (is_set(model, "byte_fallback")) HP_TRY(read_byte_tokens(parts));
  if (!parts.bytes && is_set(model, "unk_token")) {
    const auto name = model.at("unk_token").get<std::string>();
    const auto unknown = parts.tokens.find(name);
    if (unknown == parts.tokens.end()) {
      return wrong("unk_token is \"" + name + "\", which vocab lacks");
    }
    parts.unknown = unknown->second;
  }
  return read_merges(model, parts,
                     [](const std::string& text) -> Result<std::string> { return text; });
}

// `read`, and an error that says under which key the document has another form.
template <typename Read>
auto read_under(const char* key, const json& document, const Read& read) -> decltype(read()) {
  try {
    return read();
  } catch (const json::exception& e) {
    return wrong(std::string(key) + ": " + problem_in(document, e) +
                 "; take the tokenizer.json that the model was published with");
  }
}

template <typename Parts>
Result<Parts> read_all(const json& document, TextRules&& text,
                       Outcome (*read)(const json& document, Parts& parts)) {
  Parts parts;
  parts.text = std::move(text);
  HP_TRY(read_under("model", document, [&] { return read(document, parts); }));
  return parts;
}

Result<std::unique_ptr<Tokenizer>> tokenizer_of(const json& document) {
  if (!document.is_object()) return wrong("not an object");
  TextRules text;
  HP_TRY_ASSIGN(text.added,
                read_under("added_tokens", document, [&] { return read_added_tokens(document); }));
  HP_TRY_ASSIGN(text.normalizer,
                read_under("normalizer", document, [&] { return read_normalizer(document); }));
  HP_TRY_ASSIGN(PreTokenizerParts cuts, read_under("pre_tokenizer", document,
                                                   [&] { return read_pre_tokenizer(document); }));
  text.pre_tokenizer = std::move(cuts.steps);
  if (cuts.is_byte_level) {
    HP_TRY_ASSIGN(BpeParts parts, read_all(document, std::move(text), read_model));
    return make_bpe_tokenizer(std::move(parts));
  }
  HP_TRY_ASSIGN(CharacterParts parts, read_all(document, std::move(text), read_character_model));
  return make_character_tokenizer(std::move(parts));
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
