// SPDX-License-Identifier: Apache-2.0
#include "hpctl/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "common/base/utf8.h"

namespace hpctl {
namespace {

constexpr size_t kMaxWidth = 100;

bool environment_has(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

std::string formatted(const char* format, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

std::string padded(const std::string& text, size_t width) {
  const size_t used = columns(text);
  return used < width ? text + std::string(width - used, ' ') : text;
}

}  // namespace

Terminal standard_terminal() {
  Terminal terminal{std::cout, std::cerr};
  terminal.live = ::isatty(STDOUT_FILENO) == 1;
  const char* kind = std::getenv("TERM");
  const bool dumb = kind == nullptr || std::string_view(kind) == "dumb";
  if (dumb) terminal.live = false;
  terminal.colour = terminal.live && !environment_has("NO_COLOR");
  winsize size{};
  if (terminal.live && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) {
    terminal.full_width = size.ws_col;
    terminal.width = std::min<size_t>(size.ws_col, kMaxWidth);
  }
  return terminal;
}

std::string paint(const Terminal& terminal, Colour colour, const std::string& text) {
  if (!terminal.colour || colour == Colour::kNone) return text;
  const char* code = colour == Colour::kGreen    ? "32"
                     : colour == Colour::kYellow ? "33"
                     : colour == Colour::kRed    ? "31"
                                                 : "2";
  return std::string("\x1b[") + code + "m" + text + "\x1b[0m";
}

Colour colour_of_state(std::string_view state) {
  if (state == "RUNNING" || state == "FINISHED" || state == "up" || state == "running") {
    return Colour::kGreen;
  }
  if (state == "FAILED" || state == "TIMEOUT" || state == "down") return Colour::kRed;
  if (state == "RECOVERING" || state == "STARTING" || state == "STOPPING" || state == "SUSPENDED" ||
      state == "launching") {
    return Colour::kYellow;
  }
  return Colour::kNone;
}

std::string printable(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    const size_t length = utf8_sequence_length(rest);
    if (length == 0 || starts_with_control(rest)) {
      result += text[i] == '\t' || text[i] == '\n' ? ' ' : '?';
      i += std::max<size_t>(length, 1);
      continue;
    }
    result += text.substr(i, length);
    i += length;
  }
  return result;
}

size_t columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string shorten(const std::string& text, size_t width) {
  if (columns(text) <= width) return text;
  const std::string dots = width >= 3 ? "..." : "";
  size_t keep = width - dots.size();
  size_t at = 0;
  while (at < text.size()) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
    if (begins && keep-- == 0) break;
    ++at;
  }
  return text.substr(0, at) + dots;
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return "-";
  static constexpr std::array<const char*, 6> kSuffixes = {"", "k", "M", "G", "T", "P"};
  size_t suffix = 0;
  while (std::fabs(value) >= 999.5 && suffix + 1 < kSuffixes.size()) {
    value /= 1000;
    ++suffix;
  }
  const double size = std::fabs(value);
  const char* format = suffix == 0 || size >= 99.95 ? "%.0f" : size >= 9.995 ? "%.1f" : "%.2f";
  return formatted(format, value) + kSuffixes[suffix];
}

std::string format_loss(double loss) { return formatted("%.4f", loss); }

std::string format_percent(int64_t part, int64_t whole) {
  if (whole <= 0) return "-";
  return formatted("%.2f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string counted(int64_t count, const std::string& word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

void Table::add(std::vector<std::string> row, Colour colour) {
  for (std::string& cell : row) cell = printable(cell);
  row.resize(header_.size());
  rows_.push_back(Row{std::move(row), colour});
}

std::vector<size_t> Table::widths() const {
  std::vector<size_t> widths(header_.size());
  for (size_t c = 0; c < header_.size(); ++c) {
    widths[c] = columns(header_[c]);
    for (const Row& row : rows_) widths[c] = std::max(widths[c], columns(row.cells[c]));
  }
  return widths;
}

void Table::print(const Terminal& terminal) const {
  const std::vector<size_t> all = widths();
  const size_t width = terminal.live ? terminal.width : SIZE_MAX;
  terminal.out << text_of(Row{header_, Colour::kNone}, all, width, &terminal) << "\n";
  for (const Row& row : rows_) terminal.out << text_of(row, all, width, &terminal) << "\n";
}

std::vector<Table::Line> Table::lines(size_t width) const {
  const std::vector<size_t> all = widths();
  std::vector<Line> lines = {
      {text_of(Row{header_, Colour::kNone}, all, width, nullptr), Colour::kNone}};
  for (const Row& row : rows_) lines.push_back({text_of(row, all, width, nullptr), row.colour});
  return lines;
}

std::string Table::text_of(const Row& row, const std::vector<size_t>& widths, size_t width,
                           const Terminal* painted_on) const {
  constexpr std::string_view kGap = "  ";
  std::string line;
  size_t used = 0;
  for (size_t c = 0; c < row.cells.size(); ++c) {
    const bool last = c + 1 == row.cells.size();
    const size_t room = width > used ? width - used : 1;
    const std::string cell =
        last ? shorten(row.cells[c], room) : padded(row.cells[c], widths[c]) + std::string(kGap);
    used += columns(cell);
    const bool is_painted = painted_on != nullptr && header_[c] == "STATE";
    line += is_painted ? paint(*painted_on, row.colour, cell) : cell;
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace hpctl
