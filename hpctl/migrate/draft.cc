// SPDX-License-Identifier: Apache-2.0
#include "hpctl/migrate/draft.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "common/base/json_text.h"

namespace hpctl::migrate {
namespace {

// Also where one says 1e-5 and the other 0.00001.
bool same_value(const std::string& a, const std::string& b) {
  const std::optional<double> left = number_of(a);
  const std::optional<double> right = number_of(b);
  return left && right ? *left == *right : a == b;
}

// "2:00:00", "7-00:00:00"
bool is_time(const std::string& text) {
  return text.find(':') != std::string::npos && text.back() != ':' &&
         text.find_first_not_of("0123456789:-") == std::string::npos;
}

bool is_plain(const std::string& text) {
  if (text.empty() || text.size() > 200) return false;
  if (is_time(text)) return true;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (!is_letter(text[0]) && text[0] != '/' && text[0] != '.') return false;
  if (text.back() == ':' || is_one_of(text, "true|false|null|yes|no|on|off|y|n")) return false;
  if (number_of(text)) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') ||
           std::string_view("/._-+@%=").find(c) != std::string_view::npos;
  });
}

}  // namespace

void Draft::set(std::string_view key, std::string yaml, const Given& given) {
  if (is_given(key)) return;
  const auto [place, is_new] =
      values_.try_emplace(std::string(key), Value{yaml, given.source, given.is_default});
  if (is_new) return;
  Value& known = place->second;
  if (given.is_default) return;
  if (!known.is_default && !same_value(known.yaml, yaml)) {
    report(Fate::kImpossible, given.source,
           std::string(key) + " would be " + yaml + ", but " + known.source + " says " +
               known.yaml + "; make the two agree");
    return;
  }
  if (known.is_default) known = Value{std::move(yaml), given.source, false};
}

void Draft::compute(std::string_view key, std::string yaml, std::string source) {
  if (is_given(key) && !source.starts_with("--set")) return;
  values_.insert_or_assign(std::string(key), Value{std::move(yaml), std::move(source), false});
}

bool Draft::is_given(std::string_view key) const {
  for (;;) {
    const Value* value = find(key);
    if (value != nullptr && value->source.starts_with("--set")) return true;
    const size_t dot = key.rfind('.');
    if (dot == std::string_view::npos) return false;
    key = key.substr(0, dot);
  }
}

const Value* Draft::find(std::string_view key) const {
  const auto found = values_.find(std::string(key));
  return found == values_.end() ? nullptr : &found->second;
}

void Draft::set_number(Quantity quantity, double value, const Given& given) {
  const auto [place, is_new] =
      numbers_.try_emplace(quantity, Number{value, given.source, given.is_default});
  if (is_new || given.is_default) return;
  Number& known = place->second;
  if (!known.is_default && known.value != value) {
    report(Fate::kImpossible, given.source,
           number_text(value) + ", but " + known.source + " says " + number_text(known.value) +
               "; make the two agree");
    return;
  }
  if (known.is_default) known = Number{value, given.source, false};
}

void Draft::replace_number(Quantity quantity, double value, const Given& given) {
  numbers_.insert_or_assign(quantity, Number{value, given.source, given.is_default});
}

std::optional<Number> Draft::number(Quantity quantity) const {
  const auto found = numbers_.find(quantity);
  return found == numbers_.end() ? std::nullopt : std::optional<Number>(found->second);
}

void Draft::set_variable(const std::string& name, std::string value, std::string source) {
  variables_.insert_or_assign(name, Value{std::move(value), std::move(source), false});
}

void Draft::add_hook(std::string line, std::string source) {
  hooks_.emplace_back(std::move(line), std::move(source));
}

void Draft::set_command(std::vector<std::string> words, std::string source) {
  command_ = std::move(words);
  command_source_ = std::move(source);
}

void Draft::report(Fate fate, std::string source, std::string text) {
  lines_[static_cast<size_t>(fate)].push_back({std::move(source), std::move(text)});
}

void Draft::report(Fate fate, const Given& given, std::string text) {
  if (given.is_default && fate == Fate::kUnneeded) return;
  report(fate, given.source, std::move(text));
}

void take_later(const Given& given, const Document&, Draft& draft) {
  draft.report(Fate::kTaken, given, given.text);
}

std::string yaml_text(const std::string& text) {
  // A text in JSON is a double-quoted text in YAML.
  return is_plain(text) ? text : json_text(nlohmann::json(text));
}

std::string number_text(double value) {
  std::array<char, 64> buffer{};
  const double magnitude = std::fabs(value);
  const bool plain = value == 0 || (magnitude >= 1e-4 && magnitude < 1e15);
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::general)
                       .ptr;
  return {buffer.data(), end};
}

std::optional<double> number_of(std::string_view text) {
  std::string digits(text);
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  const char* begin = digits.data();
  const char* const end = begin + digits.size();
  if (begin != end && *begin == '+') ++begin;
  double value = 0;
  const auto parsed = std::from_chars(begin, end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace hpctl::migrate
