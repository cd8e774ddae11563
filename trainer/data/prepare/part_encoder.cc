// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/prepare/part_encoder.h"

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace hpctl {
namespace {

using nlohmann::json;

// Takes the text under one key of an object and passes over all else without building it. Given
// twice, the later one counts, as in Python.
class KeyFinder : public json::json_sax_t {
 public:
  KeyFinder(const std::string& key, std::string& text) : key_(key), text_(text) {}

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
  // "[json.exception.parse_error.101] parse error at line 1, column 23: WHAT": the line is always
  // the first, as there is only one.
  bool parse_error(size_t, const std::string&, const json::exception& e) override {
    const std::string_view text = e.what();
    const size_t column = text.find("column ");
    problem = column == std::string_view::npos ? text : text.substr(column);
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

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

PartEncoder::PartEncoder(const Tokenizer& tokenizer, std::string json_key, int32_t end_of_document)
    : encoder_(tokenizer.make_encoder()),
      json_key_(std::move(json_key)),
      end_of_document_(end_of_document),
      type_(token_type_for_vocabulary(tokenizer.vocabulary())) {}

Result<EncodedPart> PartEncoder::encode(const InputFile& file, const InputPart& part) {
  EncodedPart out;
  if (!file.json_lines) {
    const Outcome done = encode_document(part.text, out);
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
    if (!done.ok()) return at_line(file, number, done.error());
  }
  return out;
}

Outcome PartEncoder::encode_line(std::string_view line, EncodedPart& out) {
  KeyFinder finder(json_key_, text_);
  if (!json::sax_parse(line.begin(), line.end(), &finder)) {
    return Error{ErrorCode::kInvalidArgument, "not JSON: " + finder.problem};
  }
  if (finder.found == KeyFinder::Found::kText) return encode_document(text_, out);
  const char* what = !finder.is_object                            ? "not a JSON object"
                     : finder.found == KeyFinder::Found::kNothing ? "the object has no key"
                                                                  : "no text under the key";
  return Error{ErrorCode::kInvalidArgument, std::string(what) + " \"" + json_key_ +
                                                "\"; name the key of the text by --json-key"};
}

Outcome PartEncoder::encode_document(std::string_view text, EncodedPart& out) {
  ids_.clear();
  HP_TRY(encoder_->encode(text, ids_));
  if (ids_.empty()) {
    ++out.empty;
    return Ok{};
  }
  if (end_of_document_ >= 0) ids_.push_back(end_of_document_);
  if (ids_.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return Error{ErrorCode::kInvalidArgument, "a document of more than 2^31 - 1 tokens"};
  }
  if (type_ == TokenType::kUint16) {
    append_ids<uint16_t>(ids_, out.tokens);
  } else {
    append_ids<int32_t>(ids_, out.tokens);
  }
  out.lengths.push_back(static_cast<int32_t>(ids_.size()));
  out.text_bytes += text.size();
  return Ok{};
}

}  // namespace hpctl
