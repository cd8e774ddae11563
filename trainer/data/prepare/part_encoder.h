// SPDX-License-Identifier: Apache-2.0
// The documents of one part as tokens. One thread's; errors name FILE:LINE.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/indexed_format.h"
#include "trainer/data/prepare/inputs.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {

struct EncodedPart {
  std::string tokens;            // as they stand in PREFIX.bin
  std::vector<int32_t> lengths;  // of each document
  uint64_t text_bytes = 0;       // of the documents' text
  uint64_t empty = 0;            // documents left out because they give no token
};

class PartEncoder {
 public:
  // The tokenizer outlives it. `end_of_document` is appended to every document; -1 = nothing.
  PartEncoder(const Tokenizer& tokenizer, std::string json_key, int32_t end_of_document);

  Result<EncodedPart> encode(const InputFile& file, const InputPart& part);

 private:
  Outcome encode_line(std::string_view line, EncodedPart& out);
  Outcome encode_document(std::string_view text, EncodedPart& out);

  std::unique_ptr<Encoder> encoder_;
  std::string json_key_;
  int32_t end_of_document_;
  TokenType type_;
  std::string text_;  // of the line under way
  std::vector<int32_t> ids_;
};

}  // namespace hpctl
