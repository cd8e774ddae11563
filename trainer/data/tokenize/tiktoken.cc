// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/tiktoken.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/printable.h"
#include "trainer/data/tokenize/bpe_tokenizer.h"

namespace hpctl {
namespace {

constexpr size_t kShownOfLine = 80;

struct SpecialToken {
  std::string_view text;
  int32_t id = 0;
};

struct Encoding {
  std::string_view name;
  uint64_t vocabulary = 0;
  std::string_view pattern;
  std::span<const SpecialToken> special;
  int32_t tokens = 0;        // without the special ones
  bool is_composed = false;  // NFC
};

constexpr SpecialToken kR50k[] = {{"<|endoftext|>", 50'256}};
constexpr SpecialToken kCl100k[] = {{"<|endoftext|>", 100'257},
                                    {"<|fim_prefix|>", 100'258},
                                    {"<|fim_middle|>", 100'259},
                                    {"<|fim_suffix|>", 100'260},
                                    {"<|endofprompt|>", 100'276}};
// Of Llama 3 and Kimi, those that all releases have; they name the others differently.
constexpr SpecialToken kLlama3[] = {{"<|begin_of_text|>", 128'000},
                                    {"<|end_of_text|>", 128'001},
                                    {"<|start_header_id|>", 128'006},
                                    {"<|end_header_id|>", 128'007},
                                    {"<|eot_id|>", 128'009}};
constexpr SpecialToken kQwen[] = {
    {"<|endoftext|>", 151'643}, {"<|im_start|>", 151'644}, {"<|im_end|>", 151'645}};
constexpr SpecialToken kKimi[] = {{"[BOS]", 163'584}, {"[EOS]", 163'585}, {"[EOT]", 163'593}};
constexpr SpecialToken kO200k[] = {{"<|endoftext|>", 199'999}, {"<|endofprompt|>", 200'018}};

constexpr Encoding kEncodings[] = {
    {"r50k_base", 50'257, kGpt2Pattern, kR50k, 50'256, false},
    {"cl100k_base", 100'277, kCl100kPattern, kCl100k, 100'256, false},
    {"Llama 3", 128'256, kCl100kPattern, kLlama3, 128'000, false},
    {"Qwen", 151'851, kQwenPattern, kQwen, 151'643, true},
    {"Kimi", 163'840, kKimiPattern, kKimi, 163'584, false},
    {"o200k_base", 200'019, kO200kPattern, kO200k, 199'998, false}};

Error wrong_file(const std::string& path, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument, path + " cannot be used as a tokenizer: " + what};
}

// nullopt: not base64.
std::optional<std::string> decoded_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  // OpenSSL takes padding for zeros, wherever it is, and leaves out space at both ends.
  const std::string_view digits = text.substr(0, text.size() - padding);
  if (digits.find_first_of("= \t\r\n") != std::string_view::npos) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int decoded = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                      reinterpret_cast<const unsigned char*>(text.data()),
                                      static_cast<int>(text.size()));
  if (decoded < 0) return std::nullopt;
  bytes.resize(static_cast<size_t>(decoded) - padding);
  return bytes;
}

struct RankedToken {
  std::string bytes;
  int32_t rank = 0;
};

// Of "BASE64 RANK"; nullopt: another form.
std::optional<RankedToken> token_of(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  RankedToken token;
  const auto bytes = decoded_base64(line.substr(0, space));
  const char* const end = line.data() + line.size();
  const auto [read, error] = std::from_chars(line.data() + space + 1, end, token.rank);
  if (!bytes || bytes->empty() || error != std::errc() || read != end || token.rank < 0) {
    return std::nullopt;
  }
  token.bytes = *bytes;
  return token;
}

std::string_view first_line(std::string_view text) {
  std::string_view line = text.substr(0, text.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

Outcome read_tokens(std::string_view text, const std::string& path, TokensByBytes& tokens) {
  std::vector<bool> is_taken;
  for (uint64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = first_line(text);
    text.remove_prefix(std::min(text.size(), text.find('\n')));
    if (!text.empty()) text.remove_prefix(1);
    if (line.empty()) continue;
    const auto token = token_of(line);
    const auto wrong_line = [&](const std::string& what) {
      return wrong_file(path, "line " + std::to_string(number) + ": " + what);
    };
    if (!token) {
      return wrong_line("expected a token in base64 and its rank, found \"" +
                        printable_line(line, kShownOfLine) + "\"");
    }
    // No encoding has more; and each rank comes once, so the file cannot ask for memory.
    constexpr int32_t kMostTokens = 1 << 20;
    if (token->rank >= kMostTokens) return wrong_line("a rank of more than 2^20");
    const auto rank = static_cast<size_t>(token->rank);
    if (rank >= is_taken.size()) is_taken.resize(rank + 1);
    if (is_taken[rank] || !tokens.emplace(token->bytes, token->rank).second) {
      return wrong_line("the token or its rank is there twice");
    }
    is_taken[rank] = true;
  }
  if (tokens.size() == is_taken.size()) return Ok{};
  return wrong_file(path, "ranks are missing: the highest is " +
                              std::to_string(is_taken.size() - 1) + " of " +
                              std::to_string(tokens.size()) + " tokens");
}

Result<Encoding> encoding_of(size_t tokens, const std::string& path) {
  std::string names;
  for (const Encoding& known : kEncodings) {
    if (static_cast<size_t>(known.tokens) == tokens) return known;
    names += (names.empty() ? "" : ", ") + std::string(known.name) + " (" +
             std::to_string(known.tokens) + ")";
  }
  return wrong_file(path, "a tiktoken file does not say how text is cut, and of " +
                              std::to_string(tokens) + " tokens that is not known; known are " +
                              names + "; take the model's tokenizer.json");
}

// Each way to make a token of two others, with its rank.
void add_merges(BpeParts& parts) {
  for (const auto& [bytes, id] : parts.tokens) {
    const std::string_view whole = bytes;
    for (size_t at = 1; at < whole.size(); ++at) {
      const auto left = parts.tokens.find(whole.substr(0, at));
      if (left == parts.tokens.end()) continue;
      const auto right = parts.tokens.find(whole.substr(at));
      if (right == parts.tokens.end()) continue;
      parts.merges.push_back(BpeMerge{left->second, right->second, id});
      parts.ranks.push_back(static_cast<uint32_t>(id));
    }
  }
}

}  // namespace

bool is_tiktoken(std::string_view bytes) {
  constexpr size_t kMostOfLine = 4'096;
  return token_of(first_line(bytes.substr(0, kMostOfLine))).has_value();
}

Result<std::unique_ptr<Tokenizer>> parse_tiktoken(std::string_view bytes, const std::string& path) {
  BpeParts parts;
  HP_TRY(read_tokens(bytes, path, parts.tokens));
  HP_TRY_ASSIGN(const Encoding encoding, encoding_of(parts.tokens.size(), path));
  HP_TRY_ASSIGN(SplitPattern pattern, SplitPattern::compile(std::string(encoding.pattern)));
  parts.text.pre_tokenizer.emplace_back(Cut{.pattern = std::move(pattern)});
  if (encoding.is_composed) parts.text.normalizer.emplace_back(NormalForm::kNfc);
  for (const SpecialToken& token : encoding.special) {
    parts.text.added.push_back({.text = std::string(token.text), .id = token.id});
  }
  parts.vocabulary = encoding.vocabulary;
  parts.ignore_merges = true;
  add_merges(parts);
  return make_bpe_tokenizer(std::move(parts));
}

}  // namespace hpctl
