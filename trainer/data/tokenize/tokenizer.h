// SPDX-License-Identifier: Apache-2.0
// Text to token ids. Three kinds: bytes; SentencePiece models (libsentencepiece); byte-level BPE,
// as GPT-2 and Llama 3 have, from Hugging Face's tokenizer.json (tokenizer_json.cc tells which
// parts of that format are known; all else is refused, never guessed), from vocab.json and
// merges.txt, or from a file of tiktoken.
//
// A tokenizer is immutable and shared by threads; each thread encodes with a separate Encoder.
// Nothing is added to the text: neither a beginning nor an end token. If the text itself holds the
// name of an added token ("<|endoftext|>"), a tokenizer.json gives that token, as Hugging Face's
// library does.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

class Encoder {
 public:
  virtual ~Encoder() = default;
  // Appends the ids of `text`. kInvalidArgument, and `ids` as it was: text that is not UTF-8 (the
  // byte tokenizer takes any), or that the tokenizer has no tokens for.
  virtual Outcome encode(std::string_view text, std::vector<int32_t>& ids) = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual uint64_t vocabulary() const = 0;      // every id is below it
  virtual int32_t end_of_document() const = 0;  // -1 = the tokenizer has none
  // The added token of that name; -1 = there is none.
  virtual int32_t added_token(std::string_view) const { return -1; }
  virtual std::unique_ptr<Encoder> make_encoder() const = 0;  // not to outlive the tokenizer
  // The text of these tokens; it need not be UTF-8. kInvalidArgument: an id that stands for no
  // text.
  virtual Result<std::string> decode(std::span<const int32_t> ids) const = 0;
};

// The error for an id that the tokenizer lacks.
Error no_token(int32_t id);

// `name` is "byte" or the path of a tokenizer.json, of a vocab.json or merges.txt, or, by its
// content, of a tiktoken file or a SentencePiece model (any other name). `hash`, where given,
// receives that of read_tokenizer_files ("" for byte).
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& name,
                                                  std::string* hash = nullptr);

// The parts, for load_tokenizer and tests. `path` is for errors.
std::unique_ptr<Tokenizer> make_byte_tokenizer();
Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(const std::string& bytes,
                                                       const std::string& path);
Result<std::unique_ptr<Tokenizer>> parse_tokenizer_json(const std::string& text,
                                                        const std::string& path);

// Where `text` stops being UTF-8 (as RFC 3629 has it: shortest forms, no surrogates); its size when
// all of it is.
size_t valid_utf8_prefix(std::string_view text);
// The error for that place.
Error not_utf8(size_t at);

}  // namespace hpctl
