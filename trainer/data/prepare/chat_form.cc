// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/prepare/chat_form.h"

#include <array>
#include <string_view>

#include "common/base/check.h"
#include "common/base/printable.h"

namespace hpctl {
namespace {

constexpr size_t kShownBytes = 40;  // of a role that is not known

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

void MarkedTokens::mark(bool learnt) {
  const auto count = static_cast<int32_t>(ids.size() - marked_);
  marked_ = ids.size();
  if (count == 0) return;
  if (spans.empty() && learnt) spans.push_back(0);
  // Spans alternate, so the last one is to be learnt where their number is even.
  const bool last_is_learnt = !spans.empty() && spans.size() % 2 == 0;
  if (!spans.empty() && last_is_learnt == learnt) {
    spans.back() += count;
  } else {
    spans.push_back(count);
  }
}

int64_t MarkedTokens::learnt() const {
  int64_t sum = 0;
  for (size_t i = 1; i < spans.size(); i += 2) sum += spans[i];
  return sum;
}

void MarkedTokens::clear() {
  ids.clear();
  spans.clear();
  marked_ = 0;
}

// "" = the template has no such token.
struct ChatForm::Words {
  std::string_view beginning;
  std::string_view role_begin;
  std::string_view role_end;
  std::string_view turn_end;
  std::string_view before_content;  // text
  std::string_view after_turn;      // text
  bool trims = false;
  // What tools answered, as a turn of that role.
  std::string_view tool_role;
  std::string_view before_answer;
  std::string_view after_answer;
};

const ChatForm::Words& ChatForm::words_of_template(ChatTemplate name) {
  static constexpr std::array<Words, 2> kWords = {
      Words{"", "<|im_start|>", "", "<|im_end|>", "\n", "\n", false, "user", "\n<tool_response>\n",
            "\n</tool_response>"},
      Words{"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "\n\n",
            "", true, "", "", ""}};
  HP_CHECK(name != ChatTemplate::kNone);
  return kWords.at(static_cast<size_t>(name) - 1);
}

Result<ChatForm> ChatForm::create(ChatTemplate name, const Tokenizer& tokenizer,
                                  const std::string& tokenizer_name) {
  ChatForm form(words_of_template(name));
  const Words& words = *form.words_;
  for (const auto& [word, id] :
       {std::pair(words.beginning, &form.beginning_),
        std::pair(words.role_begin, &form.role_begin_), std::pair(words.role_end, &form.role_end_),
        std::pair(words.turn_end, &form.turn_end_)}) {
    if (word.empty()) continue;
    *id = tokenizer.added_token(word);
    if (*id >= 0) continue;
    return Error{ErrorCode::kInvalidArgument,
                 "tokenizer " + tokenizer_name + " has no added token " + std::string(word) +
                     ", which chat template " + to_word(name) +
                     " needs; take the tokenizer.json of a model that was made for this template, "
                     "or another template"};
  }
  return form;
}

Outcome ChatForm::check_role(const std::string& role) const {
  const bool has_tools = !words_->tool_role.empty();
  if (role == "system" || role == "user" || role == "assistant") return Ok{};
  if (role == "tool" && has_tools) return Ok{};
  return Error{ErrorCode::kInvalidArgument,
               "role \"" + printable_line(role, kShownBytes) + "\"; expected system, user" +
                   (has_tools ? ", assistant or tool" : " or assistant")};
}

Outcome ChatForm::encode(const std::vector<ChatMessage>& messages, Encoder& encoder,
                         MarkedTokens& out) const {
  const auto special = [&](int32_t id) {
    if (id >= 0) out.ids.push_back(id);
  };
  special(beginning_);
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    HP_TRY(check_role(message.role));
    special(role_begin_);
    if (message.role == "tool") {
      std::string text(words_->tool_role);
      const auto answer = [&](const std::string& content) {
        text.append(words_->before_answer).append(content).append(words_->after_answer);
      };
      answer(message.content);
      while (i + 1 < messages.size() && messages[i + 1].role == "tool") {
        answer(messages[++i].content);
      }
      HP_TRY(encoder.encode(text, out.ids));
      special(turn_end_);
      HP_TRY(encoder.encode(words_->after_turn, out.ids));
      continue;
    }
    const bool is_generated = message.role == "assistant";
    std::string text = message.role;
    if (role_end_ >= 0) {
      HP_TRY(encoder.encode(text, out.ids));
      special(role_end_);
      text.clear();
    }
    text += words_->before_content;
    const std::string_view content =
        words_->trims ? trimmed(message.content) : std::string_view(message.content);
    if (!is_generated) text += content;
    HP_TRY(encoder.encode(text, out.ids));
    if (is_generated) {
      out.mark(false);
      HP_TRY(encoder.encode(content, out.ids));
    }
    special(turn_end_);
    if (is_generated) out.mark(message.learnt);
    if (!words_->after_turn.empty()) HP_TRY(encoder.encode(words_->after_turn, out.ids));
  }
  out.mark(false);
  return Ok{};
}

}  // namespace hpctl
