// SPDX-License-Identifier: Apache-2.0
// The documents of one part as tokens. One thread's; errors name FILE:LINE.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/indexed_format.h"
#include "trainer/data/prepare/chat_form.h"
#include "trainer/data/prepare/inputs.h"
#include "trainer/data/prepare/unread_values.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {

struct EncodedPart {
  std::string tokens;                               // as they stand in PREFIX.bin
  std::vector<int32_t> lengths;                     // of each sequence
  std::optional<std::vector<int32_t>> documents{};  // sequences of each; none: text, one each
  uint64_t text_bytes = 0;                          // of the documents' text
  uint64_t empty = 0;          // documents left out: of no token, or with nothing to learn
  uint64_t answer_tokens = 0;  // to be learnt; 0 of text
  uint64_t bad_lines = 0;      // left out
  std::string first_bad;       // FILE:LINE: what, of the first of them
};

// The form of a line.
struct LineForm {
  DataFormat format = DataFormat::kText;
  std::string json_key;            // text
  int32_t end_of_document = -1;    // appended to every text and completion; -1 = nothing
  std::optional<ChatForm> chat{};  // chat
  bool leaves_bad_lines_out = false;
};

class PartEncoder {
 public:
  // The tokenizer outlives it.
  PartEncoder(const Tokenizer& tokenizer, LineForm form);

  Result<EncodedPart> encode(const InputFile& file, const InputPart& part);

 private:
  class KeyFinder;

  Outcome encode_line(std::string_view line, EncodedPart& out);
  Outcome encode_text_line(std::string_view line, EncodedPart& out);
  Outcome encode_found(const KeyFinder& finder, EncodedPart& out);
  Outcome encode_document(std::string_view text, EncodedPart& out);
  Outcome encode_pair(std::string_view line, EncodedPart& out);
  Outcome encode_chat(std::string_view line, EncodedPart& out);
  Outcome append_marked(EncodedPart& out);
  Outcome append(const std::vector<int32_t>& ids, EncodedPart& out) const;

  std::unique_ptr<Encoder> encoder_;
  LineForm form_;
  ReadKeys keys_;
  TokenType type_;
  std::string text_;  // of the line under way
  std::vector<int32_t> ids_;
  MarkedTokens marked_;  // of the line under way
};

}  // namespace hpctl
