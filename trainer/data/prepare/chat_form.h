// SPDX-License-Identifier: Apache-2.0
// The built-in chat templates: a conversation as tokens, with each turn of the assistant and its
// end token marked as learnt.
//
//   chatml   <|im_start|>ROLE\nCONTENT<|im_end|>\n                    (Qwen's; no system message is
//                                                                     added where there is none)
//   llama3   <|begin_of_text|> once, then for each message
//            <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>   (CONTENT without
//            blanks
//                                                                     at its ends)
//
// The text between special tokens is encoded as one, as the libraries that apply such templates do,
// except the assistant's turn: it is encoded separately, since a model that generates has the
// tokens before it already.
//
// What tools answer (role tool) is a turn of the user in chatml, as in Qwen's templates: each
// answer as \n<tool_response>\nCONTENT\n</tool_response>, those in a row in one turn. llama3
// refuses it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/train_spec.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {

// Tokens, and in turn how many of them are given and how many are to be learnt, the former first.
struct MarkedTokens {
  std::vector<int32_t> ids;
  std::vector<int32_t> spans;

  // Marks the tokens appended to `ids` since the last call.
  void mark(bool learnt);
  int64_t learnt() const;
  void clear();

 private:
  size_t marked_ = 0;
};

struct ChatMessage {
  std::string role;
  std::string content;
  bool learnt = false;  // of the assistant's alone
};

// A template with the ids of its special tokens.
class ChatForm {
 public:
  // kInvalidArgument: the tokenizer, whose name is for errors, lacks a token.
  static Result<ChatForm> create(ChatTemplate name, const Tokenizer& tokenizer,
                                 const std::string& tokenizer_name);

  // Appends to `out`. kInvalidArgument: a role that the template has no form for, or as
  // Encoder::encode.
  Outcome encode(const std::vector<ChatMessage>& messages, Encoder& encoder,
                 MarkedTokens& out) const;

 private:
  struct Words;
  static const Words& words_of_template(ChatTemplate name);
  explicit ChatForm(const Words& words) : words_(&words) {}
  Outcome check_role(const std::string& role) const;

  const Words* words_;
  int32_t beginning_ = -1;
  int32_t role_begin_ = -1;
  int32_t role_end_ = -1;
  int32_t turn_end_ = -1;
};

}  // namespace hpctl
