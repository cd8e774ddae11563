// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/tokenizer.h"

#include "trainer/data/tokenize/tiktoken.h"
#include "trainer/data/tokenize/vocab_merges.h"
#include "trainer/data/tokenizer_files.h"

namespace hpctl {
namespace {

class ByteEncoder : public Encoder {
 public:
  Outcome encode(std::string_view text, std::vector<int32_t>& ids) override {
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return Ok{};
  }
};

class ByteTokenizer : public Tokenizer {
 public:
  uint64_t vocabulary() const override { return 256; }
  int32_t end_of_document() const override { return 0; }  // kSeparatorToken of corpus.h
  std::unique_ptr<Encoder> make_encoder() const override { return std::make_unique<ByteEncoder>(); }
  Result<std::string> decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id > 255) return no_token(id);
      text += static_cast<char>(id);
    }
    return text;
  }
};

// Bytes of the sequence that begins with `first`; 0 = none can. `low` and `high` bound the second.
size_t sequence_size(uint8_t first, uint8_t& low, uint8_t& high) {
  low = 0x80;
  high = 0xbf;
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  if (first < 0xe0) return 2;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  return first < 0xf0 ? 3 : 4;
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    uint8_t low = 0;
    uint8_t high = 0;
    const size_t size = sequence_size(byte(i), low, high);
    if (size == 0 || size > text.size() - i) return i;
    for (size_t k = 1; k < size; ++k) {
      if (byte(i + k) < low || byte(i + k) > high) return i;
      low = 0x80;
      high = 0xbf;
    }
    i += size;
  }
  return text.size();
}

Error not_utf8(size_t at) {
  return Error{ErrorCode::kInvalidArgument,
               "not UTF-8 at byte " + std::to_string(at) +
                   " of the document; convert the file (iconv), or use the byte tokenizer"};
}

Error no_token(int32_t id) {
  return Error{ErrorCode::kInvalidArgument, "the tokenizer has no token " + std::to_string(id) +
                                                "; use the one that the model was trained with"};
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& name, std::string* hash) {
  if (hash != nullptr) hash->clear();
  if (name == "byte") return make_byte_tokenizer();
  HP_TRY_ASSIGN(const TokenizerFiles files, read_tokenizer_files(name));
  if (hash != nullptr) *hash = files.hash;
  if (files.is_pair) {
    HP_TRY_ASSIGN(const std::string document, tokenizer_json_of(files));
    return parse_tokenizer_json(document, files.path);
  }
  if (name.ends_with(".json")) return parse_tokenizer_json(files.text, name);
  if (is_tiktoken(files.text)) return parse_tiktoken(files.text, name);
  return parse_sentencepiece(files.text, name);
}

}  // namespace hpctl
