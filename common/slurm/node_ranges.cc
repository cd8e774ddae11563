// SPDX-License-Identifier: Apache-2.0
#include "common/slurm/node_ranges.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "common/base/printable.h"

namespace hpctl {
namespace {

constexpr size_t kMostDigits = 9;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t trailing_digits(std::string_view name) {
  size_t count = 0;
  while (count < name.size() && count < kMostDigits && is_digit(name[name.size() - 1 - count])) {
    ++count;
  }
  return count;
}

// Of at most kMostDigits digits; nullopt for anything else.
std::optional<uint32_t> number_in(std::string_view digits) {
  if (digits.empty() || digits.size() > kMostDigits) return std::nullopt;
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::string padded_number(uint32_t value, size_t width) {
  const std::string digits = std::to_string(value);
  return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
}

struct Number {
  size_t width;
  uint32_t value;
  auto operator<=>(const Number&) const = default;
};

// "1-64" or "70", beginning at numbers[at]; `at` is moved past it.
std::string next_range(const std::vector<Number>& numbers, size_t& at) {
  const Number first = numbers[at];
  Number last = first;
  for (++at; at < numbers.size(); ++at) {
    if (numbers[at].width != last.width || numbers[at].value != last.value + 1) break;
    last = numbers[at];
  }
  std::string range = padded_number(first.value, first.width);
  if (last != first) range += "-" + padded_number(last.value, last.width);
  return range;
}

// As much of the numbers of one prefix as fits into `room`.
std::string with_prefix(const std::string& prefix, const std::vector<Number>& numbers,
                        size_t room) {
  if (numbers.size() == 1) {
    std::string name = prefix + padded_number(numbers[0].value, numbers[0].width);
    return name.size() <= room ? name : "";
  }
  std::string ranges;
  for (size_t at = 0; at < numbers.size();) {
    const std::string range = next_range(numbers, at);
    const size_t size = prefix.size() + ranges.size() + range.size() + 3;  // "[", "," and "]"
    if (size > room) break;
    ranges += (ranges.empty() ? "" : ",") + range;
  }
  return ranges.empty() ? "" : prefix + "[" + ranges + "]";
}

Error not_ranges(std::string_view text) {
  return Error{ErrorCode::kInvalidArgument,
               "\"" + printable_line(text, 80) + "\" is no list of nodes such as p5-[1-4]"};
}

// "1-64,70" behind `prefix`. False: malformed.
bool add_numbers(std::string_view prefix, std::string_view ranges, size_t max_names,
                 std::vector<std::string>& names) {
  while (!ranges.empty()) {
    const std::string_view range = ranges.substr(0, ranges.find(','));
    ranges.remove_prefix(std::min(ranges.size(), range.size() + 1));
    const std::string_view from = range.substr(0, range.find('-'));
    const std::string_view to = from.size() < range.size() ? range.substr(from.size() + 1) : from;
    const auto first = number_in(from);
    const auto last = number_in(to);
    if (!first || !last || *last < *first) return false;
    for (uint32_t value = *first; value <= *last && names.size() < max_names; ++value) {
      names.push_back(std::string(prefix) + padded_number(value, from.size()));
    }
  }
  return true;
}

}  // namespace

std::string to_node_ranges(const std::vector<std::string>& names, size_t max_bytes) {
  std::map<std::string, std::vector<Number>> numbered;  // by prefix
  std::vector<std::string> plain;
  for (const std::string& name : names) {
    if (name.empty() || name.find_first_of(",[]") != std::string::npos) continue;
    const size_t width = trailing_digits(name);
    if (width == 0) {
      plain.push_back(name);
      continue;
    }
    const std::string_view digits = std::string_view(name).substr(name.size() - width);
    numbered[name.substr(0, name.size() - width)].push_back({width, *number_in(digits)});
  }
  std::string text;
  const auto add = [&](const std::string& item) {
    if (item.empty() || text.size() + item.size() + 1 > max_bytes) return;
    text += (text.empty() ? "" : ",") + item;
  };
  for (auto& [prefix, numbers] : numbered) {
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    const size_t room = max_bytes > text.size() + 1 ? max_bytes - text.size() - 1 : 0;
    add(with_prefix(prefix, numbers, room));
  }
  std::sort(plain.begin(), plain.end());
  for (const std::string& name : plain) add(name);
  return text;
}

Result<std::vector<std::string>> from_node_ranges(std::string_view text, size_t max_names) {
  std::vector<std::string> names;
  for (std::string_view rest = text; !rest.empty() && names.size() < max_names;) {
    const size_t end = rest.find_first_of(",[");
    const std::string_view prefix = rest.substr(0, end);
    if (prefix.find(']') != std::string_view::npos) return not_ranges(text);
    if (end == std::string_view::npos || rest[end] == ',') {
      if (prefix.empty()) return not_ranges(text);
      names.emplace_back(prefix);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      continue;
    }
    const size_t close = rest.find(']');
    if (close == std::string_view::npos || close == end + 1 ||
        !add_numbers(prefix, rest.substr(end + 1, close - end - 1), max_names, names)) {
      return not_ranges(text);
    }
    rest.remove_prefix(close + 1);
    if (rest.empty()) break;
    if (rest[0] != ',') return not_ranges(text);
    rest.remove_prefix(1);
  }
  return names;
}

}  // namespace hpctl
