// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/prepare/unread_values.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

namespace hpctl {
namespace {

constexpr size_t kLineDepth = 1;     // of the line's members
constexpr size_t kElementDepth = 3;  // of those of an object in a list under a member

// The quote that ends the string which begins at `begin`; npos: none does.
size_t end_of_string(std::string_view line, size_t begin) {
  for (size_t i = begin + 1; i < line.size(); ++i) {
    if (line[i] == '"') return i;
    if (line[i] == '\\') ++i;
  }
  return std::string_view::npos;
}

// Whether the string that ends there is the name of a member.
bool is_name(std::string_view line, size_t end) {
  const size_t next = line.find_first_not_of(" \t\r", end + 1);
  return next != std::string_view::npos && line[next] == ':';
}

bool is_number_that_json_lacks(const std::string& word) {
  if (word == "NaN" || word == "Infinity" || word == "-Infinity") return true;
  const size_t digits = word.starts_with('-') ? 1 : 0;
  if (digits == word.size() || std::isdigit(static_cast<unsigned char>(word[digits])) == 0) {
    return false;
  }
  if (word.find_first_not_of("0123456789+-.eE") != std::string::npos) return false;
  return std::isinf(std::strtod(word.c_str(), nullptr));
}

// Of "\uD83D" at `at`; -1 = no such escape.
int escaped_unit(std::string_view line, size_t at) {
  constexpr size_t kEscape = 6;
  if (at + kEscape > line.size() || line[at] != '\\' || line[at + 1] != 'u') return -1;
  const std::string digits(line.substr(at + 2, kEscape - 2));
  if (!std::all_of(digits.begin(), digits.end(),
                   [](unsigned char c) { return std::isxdigit(c); })) {
    return -1;
  }
  return static_cast<int>(std::strtol(digits.c_str(), nullptr, 16));
}

// In the string from `begin` to `end`, both quotes.
void mend_surrogates(std::string& line, size_t begin, size_t end) {
  constexpr size_t kEscape = 6;
  const auto is_high = [](int unit) { return unit >= 0xd800 && unit < 0xdc00; };
  const auto is_low = [](int unit) { return unit >= 0xdc00 && unit < 0xe000; };
  for (size_t i = begin + 1; i < end;) {
    if (line[i] != '\\') {
      ++i;
      continue;
    }
    const int unit = escaped_unit(line, i);
    if (is_high(unit) && is_low(escaped_unit(line, i + kEscape))) {
      i += 2 * kEscape;
      continue;
    }
    if (is_high(unit) || is_low(unit)) line.replace(i, kEscape, "\\ufffd");
    i += unit < 0 ? 2 : kEscape;
  }
}

bool is_read(const ReadKeys& keys, size_t depth, std::string_view name) {
  const bool is_element = depth == kElementDepth && !keys.element.empty();
  if (depth != kLineDepth && !is_element) return true;
  if (name.find('\\') != std::string_view::npos) return true;  // whatever it spells
  const auto& read = is_element ? keys.element : keys.line;
  return std::find(read.begin(), read.end(), name) != read.end();
}

}  // namespace

std::string without_unread_faults(std::string_view text, const ReadKeys& keys) {
  constexpr std::string_view kEndsOfWord = ",:]}[{\" \t\r\n";
  std::string line(text);
  size_t depth = 0;
  size_t unread = 0;  // the depth of the member whose value nobody reads; 0 = none
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      const size_t end = end_of_string(line, i);
      if (end == std::string::npos) break;
      if (unread > 0) {
        mend_surrogates(line, i, end);
      } else if (is_name(line, end) &&
                 !is_read(keys, depth, std::string_view(line).substr(i + 1, end - i - 1))) {
        unread = depth;
      }
      i = end;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']' || c == ',') {
      if (depth == unread) unread = 0;
      if (c != ',' && depth > 0) --depth;
    } else if (unread > 0 && kEndsOfWord.find(c) == std::string_view::npos) {
      const size_t end = std::min(line.find_first_of(kEndsOfWord, i), line.size());
      if (is_number_that_json_lacks(line.substr(i, end - i))) {
        line.replace(i, end - i, "0" + std::string(end - i - 1, ' '));
      }
      i = end - 1;
    }
  }
  return line;
}

}  // namespace hpctl
