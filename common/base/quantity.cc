// SPDX-License-Identifier: Apache-2.0
#include "common/base/quantity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <vector>

namespace hpctl {
namespace {

constexpr int64_t kMaxDurationMs = int64_t{365} * 86'400'000;

struct Unit {
  std::string_view name;
  int64_t ms;
};
constexpr std::array<Unit, 5> kUnits = {
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Digits only, at most nine of them: what follows cannot overflow.
bool small_number(std::string_view text, int64_t& out) {
  if (!all_digits(text) || text.size() > 9) return false;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return true;
}

// "[D-]HH:MM:SS", as Slurm writes times.
bool clock_duration_ms(std::string_view text, int64_t& ms) {
  int64_t days = 0;
  if (const size_t dash = text.find('-'); dash != std::string_view::npos) {
    if (!small_number(text.substr(0, dash), days)) return false;
    text.remove_prefix(dash + 1);
  }
  std::array<int64_t, 3> parts{};
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t colon = text.find(':');
    const bool last = i + 1 == parts.size();
    if (last != (colon == std::string_view::npos)) return false;
    if (!small_number(text.substr(0, colon), parts[i])) return false;
    if (i > 0 && parts[i] > 59) return false;
    if (!last) text.remove_prefix(colon + 1);
  }
  ms = ((days * 24 + parts[0]) * 3600 + parts[1] * 60 + parts[2]) * 1000;
  return true;
}

}  // namespace

Result<int64_t> parse_duration_ms(std::string_view text) {
  int64_t ms = -1;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  int64_t count = 0;
  if (text.find(':') != std::string_view::npos) {
    if (!clock_duration_ms(text, ms)) ms = -1;
  } else if (small_number(text.substr(0, digits), count)) {
    for (const Unit& unit : kUnits) {
      if (text.substr(digits) == unit.name) ms = count * unit.ms;
    }
  }
  if (ms < 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "expected a duration such as 500ms, 2s, 30m, 1h, 7d or 7-00:00:00"};
  }
  if (ms > kMaxDurationMs) {
    return Error{ErrorCode::kInvalidArgument, "expected a duration of at most 365d"};
  }
  return ms;
}

Result<int64_t> parse_time_limit_minutes(std::string_view text) {
  const Error wrong{ErrorCode::kInvalidArgument,
                    "expected minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS, or a duration "
                    "such as 30m or 7d, at most 365d"};
  if (const auto ms = parse_duration_ms(text); ms.ok() && !all_digits(text)) {
    return (*ms + 59'999) / 60'000;
  }
  int64_t days = 0;
  const size_t dash = text.find('-');
  const bool with_days = dash != std::string_view::npos;
  if (with_days) {
    if (!small_number(text.substr(0, dash), days)) return wrong;
    text.remove_prefix(dash + 1);
  }
  std::vector<int64_t> parts;
  for (bool more = true; more;) {
    const size_t colon = text.find(':');
    more = colon != std::string_view::npos;
    if (!small_number(text.substr(0, colon), parts.emplace_back())) return wrong;
    if (more) text.remove_prefix(colon + 1);
  }
  // Without days the parts end with seconds, unless there is one part only; with days they begin
  // with hours.
  if (parts.size() > 3) return wrong;
  if (with_days) parts.resize(3, 0);
  if (!with_days && parts.size() == 1) parts.push_back(0);
  while (parts.size() < 3) parts.insert(parts.begin(), 0);
  const int64_t seconds = (days * 24 + parts[0]) * 3600 + parts[1] * 60 + parts[2];
  if (seconds > kMaxDurationMs / 1000) {
    return Error{ErrorCode::kInvalidArgument, "expected a time limit of at most 365d"};
  }
  return (seconds + 59) / 60;
}

std::string format_time_limit(int64_t minutes) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%lld-%02lld:%02lld:00",
                static_cast<long long>(minutes / 1440), static_cast<long long>(minutes / 60 % 24),
                static_cast<long long>(minutes % 60));
  return text.data();
}

Result<int64_t> parse_memory_mib(std::string_view text) {
  const Error wrong{ErrorCode::kInvalidArgument,
                    "expected MiB or a number with K, M, G or T, such as 64G"};
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  int64_t count = 0;
  if (!small_number(text.substr(0, digits), count) || text.size() > digits + 1) return wrong;
  switch (digits < text.size() ? text[digits] : 'M') {
    case 'K':
      return (count + 1023) / 1024;
    case 'M':
      return count;
    case 'G':
      return count * 1024;
    case 'T':
      return count * 1024 * 1024;
    default:
      return wrong;
  }
}

std::string format_duration_ms(int64_t ms) {
  for (const Unit& unit : kUnits) {
    if (ms != 0 && ms % unit.ms == 0) return std::to_string(ms / unit.ms) + std::string(unit.name);
  }
  return "0s";
}

}  // namespace hpctl
