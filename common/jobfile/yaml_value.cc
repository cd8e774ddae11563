// SPDX-License-Identifier: Apache-2.0
#include "common/jobfile/yaml_value.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>

#include "common/base/printable.h"
#include "common/base/utf8.h"
#include "common/base/variable_name.h"
#include "common/jobfile/foreign_words.h"
#include "common/process/python_command.h"

namespace hpctl {
namespace {

constexpr size_t kShownPath = 400;

// A scalar without quotes: YAML gives quoted ones the tag "!", and a quoted number is a text.
bool is_unquoted_scalar(const YAML::Node& node) { return node.IsScalar() && node.Tag() != "!"; }

template <typename Number>
bool parse_number(const std::string& text, Number& out) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && stop == end;
}

}  // namespace

bool is_plain_text(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_sequence_length(text);
    const bool is_blank = text.front() == '\t' || text.front() == '\n';
    if (length == 0 || (starts_with_control(text) && !is_blank)) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string describe_node(const YAML::Node& node) {
  if (node.IsSequence()) return node.size() == 0 ? "an empty list" : "a list";
  if (node.IsMap()) return "a mapping";
  if (!node.IsScalar()) return "nothing";
  constexpr size_t kShown = 40;
  std::string shown = node.Scalar();
  if (!is_plain_text(shown)) return "text that is not UTF-8 or has control characters";
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  if (shown.size() > kShown) {
    size_t cut = kShown;
    while (cut > 0 && (static_cast<unsigned char>(shown[cut]) & 0xc0) == 0x80) --cut;
    shown = shown.substr(0, cut) + "...";
  }
  return (node.Tag() == "!" ? "the text \"" : "\"") + shown + "\"";
}

void YamlValue::fail_at(const YAML::Mark& mark, const std::string& message) {
  const YAML::Mark& at = mark.line < 0 ? key_mark_ : mark;
  problems_.push_back(JobYamlProblem{at.line + 1, at.column + 1, path_, message});
}

void YamlValue::fail(const std::string& message) {
  // The mark of an empty value is wherever the next token stands; point at the key instead.
  fail_at(node_.IsNull() ? key_mark_ : node_.Mark(), message);
}

void YamlValue::read_word(const std::string& all, const SetWord& set) {
  if (node_.IsScalar() && set(node_.Scalar())) return;
  const std::string ours(node_.IsScalar() ? find_foreign_value(path_, node_.Scalar()) : "");
  fail("expected one of " + all + "; found " + describe_node(node_) +
       (ours.empty() ? "" : "; here it is " + ours));
}

void YamlValue::read_word_list(const std::string& all, const SetWord& add) {
  if (!node_.IsSequence()) return fail_expected("a list such as [a, b]");
  for (const YAML::Node& item : node_) {
    YamlValue word(item, key_mark_, path_, directory_, problems_);
    word.read_word(all, add);
  }
}

void YamlValue::read(int64_t& out) {
  int64_t value = 0;
  if (is_unquoted_scalar(node_) && parse_number(node_.Scalar(), value)) {
    out = value;
    return;
  }
  out = 0;
  fail_expected("an integer");
}

void YamlValue::read(int32_t& out) {
  int64_t value = 0;
  read(value);
  if (value > std::numeric_limits<int32_t>::max() || value < std::numeric_limits<int32_t>::min()) {
    value = 0;
    fail_expected("a smaller number");
  }
  out = static_cast<int32_t>(value);
}

void YamlValue::read(uint64_t& out) {
  uint64_t value = 0;
  if (is_unquoted_scalar(node_) && parse_number(node_.Scalar(), value)) {
    out = value;
    return;
  }
  fail_expected("an integer from 0 to 18446744073709551615");
}

void YamlValue::read(double& out) {
  double value = 0;
  const bool finite = is_unquoted_scalar(node_) && parse_number(node_.Scalar(), value) &&
                      value - value == 0;  // neither infinite nor NaN
  if (finite) {
    out = value;
    return;
  }
  fail_expected("a number");
}

void YamlValue::read(bool& out) {
  if (is_unquoted_scalar(node_) && (is_word("true") || is_word("false"))) {
    out = is_word("true");
    return;
  }
  fail_expected("true or false");
}

void YamlValue::read(std::string& out) {
  if (!node_.IsScalar()) return fail_expected("a text");
  if (!is_plain_text(node_.Scalar())) return fail_expected("a text in UTF-8");
  out = node_.Scalar();
}

void YamlValue::read_duration(int64_t& ms) {
  const auto parsed =
      parse_duration_ms(node_.IsScalar() ? std::string_view(node_.Scalar()) : std::string_view());
  if (parsed.ok()) {
    ms = *parsed;
    return;
  }
  fail(parsed.error().message + "; found " + describe_node(node_));
}

std::string YamlValue::resolved(const std::string& path) const {
  const std::filesystem::path given(path);
  std::string full = (given.is_absolute() ? given : std::filesystem::path(directory_) / given)
                         .lexically_normal()
                         .string();
  while (full.size() > 1 && full.back() == '/') full.pop_back();
  return full;
}

void YamlValue::read_weighted_paths(std::vector<std::pair<std::string, double>>& out) {
  if (!node_.IsMap()) return fail_expected("a mapping such as {data/a: 0.7, data/b: 0.3}");
  for (auto it = node_.begin(); it != node_.end(); ++it) {
    YamlValue path(it->first, it->first.Mark(), path_, directory_, problems_);
    YamlValue weight(it->second, it->first.Mark(), path_, directory_, problems_);
    std::string name;
    double value = 0;
    path.read_path(name);
    weight.read(value);
    out.emplace_back(std::move(name), value);
  }
}

void YamlValue::read_numbers(std::vector<double>& out) {
  if (!node_.IsSequence()) return fail_expected("a list of numbers");
  std::vector<double> numbers;
  for (const YAML::Node& item : node_) {
    YamlValue value(item, key_mark_, path_, directory_, problems_);
    value.read(numbers.emplace_back());
  }
  out = std::move(numbers);
}

void YamlValue::read_path(std::string& out) {
  std::string text;
  const size_t before = problems_.size();
  read(text);
  if (problems_.size() != before) return;
  if (text.find('\n') != std::string::npos) return fail_expected("a path on one line");
  if (text.starts_with("~")) {
    return fail("~ is not expanded in job files; write the whole path instead of \"" + text + "\"");
  }
  if (text.empty()) {
    out.clear();
    return;
  }
  out = resolved(text);
  if (!is_utf8(out)) {  // the job file's own directory
    fail("the path " + printable_line(out, kShownPath) +
         " has bytes that are not UTF-8, shown as ?; move the job file to another directory, or "
         "write the whole path");
  }
}

void YamlValue::read_words(std::vector<std::string>& out) {
  if (!node_.IsSequence()) return fail_expected("a list such as [a, b]");
  std::vector<std::string> items;
  for (const auto& item : node_) {
    if (!item.IsScalar() || !is_plain_text(item.Scalar())) {
      const YAML::Mark at = item.IsNull() ? node_.Mark() : item.Mark();
      return fail_at(at, "expected a text as item " + std::to_string(items.size() + 1) +
                             ", found " + describe_node(item));
    }
    items.push_back(item.Scalar());
  }
  out = std::move(items);
}

// The list for a line that was written as it is typed: its words, or, where a shell would do more
// than cut it into words, a shell.
static std::string list_for_line(const std::string& line) {
  if (line.find_first_not_of(" \t\n") == std::string::npos) return "[program, argument]";
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ./_-+=";
  if (line.find_first_not_of(kPlain) != std::string::npos) return "[sh, -c, '" + line + "']";
  std::string list;
  for (size_t begin = line.find_first_not_of(' '); begin < line.size();) {
    const size_t end = std::min(line.size(), line.find(' ', begin));
    list += (list.empty() ? "" : ", ") + line.substr(begin, end - begin);
    begin = std::min(line.size(), line.find_first_not_of(' ', end));
  }
  return "[" + list + "]";
}

void YamlValue::read_command(std::vector<std::string>& out) {
  constexpr size_t kMostShown = 80;
  if (node_.IsScalar() && node_.Scalar().size() <= kMostShown && is_plain_text(node_.Scalar()) &&
      node_.Scalar().find_first_of("'\n\t") == std::string::npos) {
    return fail_expected("a list such as " + list_for_line(node_.Scalar()));
  }
  if (!node_.IsSequence() || node_.size() == 0) {
    return fail_expected("a list such as [program, argument]");
  }
  std::vector<std::string> items;
  const size_t problems = problems_.size();
  read_words(items);
  if (problems_.size() > problems) return;
  if (items[0].empty()) return fail("expected a program as first item, found an empty text");
  if (items[0].find('/') != std::string::npos) items[0] = resolved(items[0]);
  out = std::move(items);
}

void YamlValue::read_workload_command(std::vector<std::string>& out) {
  const size_t problems = problems_.size();
  read_command(out);
  if (problems_.size() > problems) return;
  const auto python = python_command(out);
  if (!python || python->main != PythonMain::kScript) return;
  out[python->interpreter.size()] = resolved(python->target);
}

void YamlValue::read_paths(std::vector<std::string>& out) {
  if (!node_.IsSequence()) return fail_expected("a list of paths such as [a.env, b.env]");
  std::vector<std::string> paths;
  for (const YAML::Node& item : node_) {
    YamlValue path(item, key_mark_, path_, directory_, problems_);
    path.read_path(paths.emplace_back());
  }
  out = std::move(paths);
}

void YamlValue::read_texts(std::vector<std::string>& out) {
  out.clear();
  if (node_.IsSequence()) {
    for (const auto& item : node_) {
      if (!item.IsScalar() || !is_plain_text(item.Scalar())) {
        const YAML::Mark at = item.IsNull() ? node_.Mark() : item.Mark();
        return fail_at(at, "expected a text as item " + std::to_string(out.size() + 1) +
                               ", found " + describe_node(item));
      }
      out.push_back(item.Scalar());
    }
  } else {
    std::string text;
    read(text);
    if (!text.empty()) out.push_back(text);
  }
}

void YamlValue::read_time_limit(int64_t& minutes) {
  const auto parsed = parse_time_limit_minutes(node_.IsScalar() ? node_.Scalar() : "");
  if (parsed.ok()) {
    minutes = *parsed;
    return;
  }
  fail(parsed.error().message + "; found " + describe_node(node_));
}

void YamlValue::read_memory(int64_t& mib) {
  const auto parsed = parse_memory_mib(node_.IsScalar() ? node_.Scalar() : "");
  if (parsed.ok()) {
    mib = *parsed;
    return;
  }
  fail(parsed.error().message + "; found " + describe_node(node_));
}

void YamlValue::read_environment(std::map<std::string, std::string>& out) {
  if (node_.IsNull()) return;
  if (!node_.IsMap()) return fail_expected("a mapping such as {NAME: value}");
  for (const auto& entry : node_) {
    const YAML::Mark at = entry.first.Mark();
    const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (!is_variable_name(name)) {
      fail_at(at,
              "expected the name of an environment variable, found " + describe_node(entry.first));
    } else if (is_reserved_variable(name)) {
      fail_at(at, name + " is set by hpctl for every worker and cannot be set here");
    } else if (!entry.second.IsScalar() || !is_plain_text(entry.second.Scalar())) {
      fail_at(at, "expected a text as value of " + name + ", found " + describe_node(entry.second));
    } else if (!out.emplace(name, entry.second.Scalar()).second) {
      fail_at(at, name + " is given twice");
    }
  }
}

}  // namespace hpctl
