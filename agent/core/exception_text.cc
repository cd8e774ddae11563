// SPDX-License-Identifier: Apache-2.0
#include "agent/core/exception_text.h"

#include <algorithm>
#include <cctype>

namespace hpctl::agent {
namespace {

constexpr std::string_view kTraceback = "Traceback (most recent call last):";
constexpr std::string_view kIgnored = "Exception ignored";
constexpr std::string_view kLauncher = "ChildFailedError";

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_name_byte(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// "torch.OutOfMemoryError: CUDA out of memory", "KeyboardInterrupt"; not "INFO: ready".
bool is_exception(std::string_view line) {
  const std::string_view name = line.substr(0, std::min(line.find(": "), line.size()));
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return false;
  const auto in_name = [](char c) { return is_name_byte(c) || c == '.'; };
  const std::string_view bare = name.ends_with(':') ? name.substr(0, name.size() - 1) : name;
  const bool is_lower = std::any_of(bare.begin(), bare.end(), [](char c) {
    return std::islower(static_cast<unsigned char>(c)) != 0;
  });
  return is_lower && std::all_of(bare.begin(), bare.end(), in_name);
}

// `rest` begins behind the first line of a traceback.
std::string_view exception_behind(std::string_view rest, std::string_view prefix) {
  // A progress bar may stand before the traceback on its line; "[rank0]: " is on each line.
  if (!rest.starts_with(prefix)) prefix = "";
  while (!rest.empty()) {
    std::string_view line = take_line(rest);
    if (!line.starts_with(prefix)) continue;
    line.remove_prefix(prefix.size());
    if (is_exception(line)) return line;
  }
  return "";
}

}  // namespace

std::string last_exception(std::string_view output) {
  std::string_view fallback;
  for (size_t at = output.rfind(kTraceback); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : output.rfind(kTraceback, at - 1)) {
    const std::string_view before = output.substr(0, at);
    const size_t newline = before.rfind('\n');
    const std::string_view prefix =
        newline == std::string_view::npos ? before : before.substr(newline + 1);
    std::string_view rest = output.substr(at);
    take_line(rest);
    const std::string_view exception = exception_behind(rest, prefix);
    if (exception.empty()) continue;
    if (fallback.empty()) fallback = exception;
    std::string_view above = newline == std::string_view::npos ? "" : before.substr(0, newline);
    above = above.substr(above.rfind('\n') + 1);  // npos + 1 = 0
    const bool is_consequence = above.find(kIgnored) != std::string_view::npos ||
                                exception.find(kLauncher) != std::string_view::npos;
    if (!is_consequence) return std::string(exception);
  }
  return std::string(fallback);
}

}  // namespace hpctl::agent
