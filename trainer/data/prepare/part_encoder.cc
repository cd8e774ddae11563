// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/prepare/part_encoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/printable.h"

namespace hpctl {
namespace {

using nlohmann::json;

// Of "[json.exception.parse_error.101] parse error at line 1, column 23: WHAT" what follows the
// line, which is always the first, as there is only one.
std::string problem_in_line(const json::exception& e) {
  const std::string text = e.what();
  const size_t column = text.find("column ");
  return column == std::string::npos ? text : text.substr(column);
}

}  // namespace

// Takes the text under one key of an object and passes over all else without building it. Given
// twice, the later one counts, as in Python.
class PartEncoder::KeyFinder : public json::json_sax_t {
 public:
  KeyFinder(const std::string& key, std::string& text) : key_(key), text_(text) {}

  // False: `problem` says why.
  bool parse(std::string_view line) { return json::sax_parse(line.begin(), line.end(), this); }

  enum class Found { kNothing, kText, kOther };
  Found found = Found::kNothing;
  bool is_object = false;
  std::string problem;

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool string(string_t& value) override {
    if (take()) {
      found = Found::kText;
      text_.swap(value);
    }
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ == 0) is_object = true;
    if (take()) found = Found::kOther;
    return ++depth_ > 0;
  }
  bool start_array(size_t) override {
    if (take()) found = Found::kOther;
    return ++depth_ > 0;
  }
  bool end_object() override { return --depth_ >= 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool key(string_t& name) override {
    wanted_ = depth_ == 1 && name == key_;
    return true;
  }
  bool parse_error(size_t, const std::string&, const json::exception& e) override {
    problem = problem_in_line(e);
    return false;
  }

 private:
  bool take() { return std::exchange(wanted_, false); }
  bool other() {
    if (take()) found = Found::kOther;
    return true;
  }

  const std::string& key_;
  std::string& text_;
  int depth_ = 0;
  bool wanted_ = false;  // the value that follows is the key's
};

namespace {

template <typename T>
void append_ids(const std::vector<int32_t>& ids, std::string& out) {
  const size_t before = out.size();
  out.resize(before + ids.size() * sizeof(T));
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<T>(ids[i]);
    std::memcpy(out.data() + before + i * sizeof(T), &id, sizeof(T));
  }
}

Error at_line(const InputFile& file, uint64_t line, const Error& error) {
  return Error{error.code, file.path + ":" + std::to_string(line) + ": " + error.message};
}

constexpr size_t kShownOfBadLine = 500;  // of the first bad line's error
constexpr const char* kExpectedChat =
    "expected {\"messages\": [{\"role\": TEXT, \"content\": TEXT}, ...]}";

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

Result<json> parse_object_strictly(std::string_view line) {
  try {
    json object = parse_json(line, {.bytes = PartCutter::kMaxDocumentBytes});
    if (object.is_object()) return object;
  } catch (const json::exception& e) {
    return Error{ErrorCode::kInvalidArgument, "not JSON: " + problem_in_line(e)};
  }
  return Error{ErrorCode::kInvalidArgument, "not a JSON object"};
}

// Read whole: what there is beside the pair or the messages is as small.
Result<json> parse_object(std::string_view line, const ReadKeys& keys) {
  auto object = parse_object_strictly(line);
  return object.ok() ? std::move(object) : parse_object_strictly(without_unread_faults(line, keys));
}

// Keys of a message and of a conversation that change what is said. No template here has a place
// for them, and without them the model would learn something else.
constexpr std::array kMessageKeysWithMeaning = {"tool_calls", "function_call", "reasoning_content",
                                                "reasoning",  "thinking",      "refusal",
                                                "audio",      "train"};
constexpr std::array kLineKeysWithMeaning = {"tools", "functions", "chat_template_kwargs"};
// OpenAI's: 0 = the turn is not learnt.
constexpr const char* kWeightKey = "weight";

ReadKeys keys_of(const LineForm& form) {
  if (form.format == DataFormat::kText) return {{form.json_key}, {}};
  if (form.format == DataFormat::kSft) return {{"prompt", "completion"}, {}};
  ReadKeys keys{{"messages"}, {"role", "content", kWeightKey}};
  keys.line.insert(keys.line.end(), kLineKeysWithMeaning.begin(), kLineKeysWithMeaning.end());
  keys.element.insert(keys.element.end(), kMessageKeysWithMeaning.begin(),
                      kMessageKeysWithMeaning.end());
  return keys;
}

// null, "", [] and {} say nothing.
bool says_something(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return false;
  return found->is_string() ? !found->get_ref<const std::string&>().empty() : !found->empty();
}

template <size_t kCount>
Outcome refuse_keys(const json& object, const std::array<const char*, kCount>& keys) {
  for (const char* key : keys) {
    if (!says_something(object, key)) continue;
    return Error{
        ErrorCode::kInvalidArgument,
        std::string("\"") + key +
            "\" cannot be learnt: no chat template here has a place for it, and without it the "
            "model would learn something else; write it into \"content\" as the model is to say "
            "it, or remove the line"};
  }
  return Ok{};
}

// Whether the turn is to be learnt.
Result<bool> is_learnt(const json& message, bool is_of_assistant) {
  const auto weight = message.find(kWeightKey);
  if (weight == message.end() || weight->is_null()) return is_of_assistant;
  if (*weight == 0) return false;
  if (*weight == 1 && is_of_assistant) return true;
  return Error{ErrorCode::kInvalidArgument,
               is_of_assistant ? "\"weight\" is 0 or 1: whether the message is learnt"
                               : "only messages of the assistant are learnt; the others have no "
                                 "\"weight\", or 0"};
}

Result<std::string> text_under(const json& object, const char* key, const char* expected) {
  const auto found = object.find(key);
  if (found != object.end() && found->is_string()) return found->get<std::string>();
  return Error{
      ErrorCode::kInvalidArgument,
      (found == object.end() ? std::string("no key \"") : std::string("no text under \"")) + key +
          "\"; " + expected};
}

Result<ChatMessage> message_of(const json& entry) {
  HP_TRY(refuse_keys(entry, kMessageKeysWithMeaning));
  ChatMessage message;
  HP_TRY_ASSIGN(message.role, text_under(entry, "role", kExpectedChat));
  HP_TRY_ASSIGN(message.content, text_under(entry, "content", kExpectedChat));
  HP_TRY_ASSIGN(message.learnt, is_learnt(entry, message.role == "assistant"));
  return message;
}

}  // namespace

PartEncoder::PartEncoder(const Tokenizer& tokenizer, LineForm form)
    : encoder_(tokenizer.make_encoder()),
      form_(std::move(form)),
      keys_(keys_of(form_)),
      type_(token_type_for_vocabulary(tokenizer.vocabulary())) {}

Result<EncodedPart> PartEncoder::encode(const InputFile& file, const InputPart& part) {
  EncodedPart out;
  if (form_.format != DataFormat::kText) out.documents.emplace();
  if (!file.json_lines) {
    const Outcome done = form_.format == DataFormat::kText
                             ? encode_document(part.text, out)
                             : Error{ErrorCode::kInvalidArgument,
                                     std::string("format ") + to_word(form_.format) +
                                         " is JSON lines; give files whose names end in .jsonl"};
    if (!done.ok()) return Error{done.error().code, file.path + ": " + done.error().message};
    return out;
  }
  uint64_t number = part.place.first_line;
  for (size_t begin = 0; begin < part.text.size();) {
    const size_t newline = std::min(part.text.find('\n', begin), part.text.size());
    const auto line = std::string_view(part.text).substr(begin, newline - begin);
    begin = newline + 1;
    ++number;
    if (is_blank(line)) continue;
    const Outcome done = encode_line(line, out);
    if (done.ok()) continue;
    const Error error = at_line(file, number, done.error());
    if (!form_.leaves_bad_lines_out) return error;
    if (++out.bad_lines == 1) out.first_bad = printable_line(error.message, kShownOfBadLine);
  }
  return out;
}

Outcome PartEncoder::encode_line(std::string_view line, EncodedPart& out) {
  // Most often a whole file is one array.
  if (line[line.find_first_not_of(" \t\r")] == '[') {
    return Error{ErrorCode::kInvalidArgument,
                 "not a JSON object but an array; `jq -c '.[]'` makes a line of each element"};
  }
  if (form_.format == DataFormat::kText) return encode_text_line(line, out);
  marked_.clear();
  HP_TRY(form_.format == DataFormat::kSft ? encode_pair(line, out) : encode_chat(line, out));
  return append_marked(out);
}

Outcome PartEncoder::encode_text_line(std::string_view line, EncodedPart& out) {
  KeyFinder strict(form_.json_key, text_);
  if (strict.parse(line)) return encode_found(strict, out);
  KeyFinder second(form_.json_key, text_);
  if (second.parse(without_unread_faults(line, keys_))) return encode_found(second, out);
  return Error{ErrorCode::kInvalidArgument, "not JSON: " + second.problem};
}

Outcome PartEncoder::encode_found(const KeyFinder& finder, EncodedPart& out) {
  if (finder.found == KeyFinder::Found::kText) return encode_document(text_, out);
  const char* what = !finder.is_object                            ? "not a JSON object"
                     : finder.found == KeyFinder::Found::kNothing ? "the object has no key"
                                                                  : "no text under the key";
  return Error{ErrorCode::kInvalidArgument, std::string(what) + " \"" + form_.json_key +
                                                "\"; name the key of the text by --json-key"};
}

Outcome PartEncoder::encode_document(std::string_view text, EncodedPart& out) {
  ids_.clear();
  HP_TRY(encoder_->encode(text, ids_));
  if (ids_.empty()) {
    ++out.empty;
    return Ok{};
  }
  if (form_.end_of_document >= 0) ids_.push_back(form_.end_of_document);
  HP_TRY(append(ids_, out));
  out.lengths.push_back(static_cast<int32_t>(ids_.size()));
  out.text_bytes += text.size();
  return Ok{};
}

// Prompt and completion are one text, as the model will see them; given is what the tokens of the
// prompt alone have in common with it, so that a token across the border is learnt.
Outcome PartEncoder::encode_pair(std::string_view line, EncodedPart& out) {
  constexpr const char* kExpected = "expected {\"prompt\": TEXT, \"completion\": TEXT}";
  HP_TRY_ASSIGN(const json object, parse_object(line, keys_));
  HP_TRY_ASSIGN(const std::string prompt, text_under(object, "prompt", kExpected));
  HP_TRY_ASSIGN(const std::string completion, text_under(object, "completion", kExpected));
  if (completion.empty()) return Ok{};
  ids_.clear();
  HP_TRY(encoder_->encode(prompt, ids_));
  std::vector<int32_t>& all = marked_.ids;
  HP_TRY(encoder_->encode(prompt + completion, all));
  const auto given = std::mismatch(ids_.begin(), ids_.end(), all.begin(), all.end()).first;
  const std::vector<int32_t> learnt(all.begin() + (given - ids_.begin()), all.end());
  all.resize(all.size() - learnt.size());
  marked_.mark(false);
  all.insert(all.end(), learnt.begin(), learnt.end());
  if (form_.end_of_document >= 0) all.push_back(form_.end_of_document);
  marked_.mark(true);
  out.text_bytes += prompt.size() + completion.size();
  return Ok{};
}

Outcome PartEncoder::encode_chat(std::string_view line, EncodedPart& out) {
  HP_TRY_ASSIGN(const json object, parse_object(line, keys_));
  const auto list = object.find("messages");
  if (list == object.end() || !list->is_array()) {
    return Error{ErrorCode::kInvalidArgument,
                 std::string("no list \"messages\"; ") + kExpectedChat};
  }
  HP_TRY(refuse_keys(object, kLineKeysWithMeaning));
  std::vector<ChatMessage> messages;
  uint64_t text_bytes = 0;
  for (const json& entry : *list) {
    HP_TRY_ASSIGN(ChatMessage message, message_of(entry));
    text_bytes += message.content.size();
    messages.push_back(std::move(message));
  }
  HP_TRY(form_.chat->encode(messages, *encoder_, marked_));
  out.text_bytes += text_bytes;
  return Ok{};
}

Outcome PartEncoder::append_marked(EncodedPart& out) {
  const int64_t learnt = marked_.learnt();
  if (learnt == 0) {
    ++out.empty;
    return Ok{};
  }
  HP_TRY(append(marked_.ids, out));
  out.lengths.insert(out.lengths.end(), marked_.spans.begin(), marked_.spans.end());
  out.documents->push_back(static_cast<int32_t>(marked_.spans.size()));
  out.answer_tokens += static_cast<uint64_t>(learnt);
  return Ok{};
}

Outcome PartEncoder::append(const std::vector<int32_t>& ids, EncodedPart& out) const {
  if (ids.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return Error{ErrorCode::kInvalidArgument, "a document of more than 2^31 - 1 tokens"};
  }
  if (type_ == TokenType::kUint16) {
    append_ids<uint16_t>(ids, out.tokens);
  } else {
    append_ids<int32_t>(ids, out.tokens);
  }
  return Ok{};
}

}  // namespace hpctl
