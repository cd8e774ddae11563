// SPDX-License-Identifier: Apache-2.0
#include "common/base/json_file.h"

#include <algorithm>

#include "common/base/git_lfs.h"
#include "common/base/printable.h"

using nlohmann::json;

namespace hpctl {
namespace {

constexpr size_t kShownContext = 40;

// Builds nothing; keeps the place where the parser gave up.
class ErrorPlace final : public json::json_sax_t {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(size_t /*elements*/) override { return true; }
  bool key(string_t& /*name*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const json::exception& /*e*/) override {
    read_ = position;
    return false;
  }

  // Bytes, the wrong one among them; one more than there are: the end was found.
  size_t read() const { return read_; }

 private:
  size_t read_ = 0;
};

// `read`: as ErrorPlace has it.
std::string describe_place(std::string_view text, size_t read) {
  if (text.starts_with(kGitLfsStart)) return kGitLfsRemedy;
  const std::string size = std::to_string(text.size());
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return "the file is empty (" + size + " bytes); get it again";
  }
  if (read > text.size()) {
    return "the file ends inside the document, after " + size +
           " bytes: it was cut short; get it again";
  }
  const std::string byte = std::to_string(read);
  if (read > 0 && text[read - 1] == '\0') {
    return "byte " + byte + " of " + size +
           " is zero: the file was not written whole; get it again";
  }
  std::string_view before = text.substr(0, read);
  before.remove_prefix(before.size() - std::min(before.size(), kShownContext));
  // A line that ends inside a string is wrong at its end.
  before.remove_prefix(before.substr(0, before.size() - 1).find_last_of("\r\n") + 1);
  return "not JSON at byte " + byte + ", the last of `" + printable_line(before, kShownContext) +
         "`; correct it there, or get the file again";
}

}  // namespace

Result<json> json_of_file(std::string_view text, const std::string& path,
                          const JsonLimits& limits) {
  std::string problem;
  try {
    return parse_json(text, limits);
  } catch (const json::exception& e) {
    problem = problem_in({}, e);
  }
  ErrorPlace place;
  if (json::sax_parse(text.begin(), text.end(), &place)) {
    return Error{ErrorCode::kInvalidArgument, path + " cannot be read: " + problem};
  }
  const std::string_view before = text.substr(0, std::max<size_t>(place.read(), 1) - 1);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  return Error{ErrorCode::kInvalidArgument,
               path + ":" + std::to_string(line) + ": " + describe_place(text, place.read())};
}

}  // namespace hpctl
