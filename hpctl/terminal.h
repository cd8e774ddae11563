// SPDX-License-Identifier: Apache-2.0
// A verb's output, and the layout of text for people: aligned tables, short numbers, colour only on
// a terminal. Text from a job or a file is made harmless first.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/duration_text.h"

namespace hpctl {

struct Terminal {
  std::ostream& out;
  std::ostream& err;
  bool live = false;        // out is a terminal: the last line may be rewritten
  bool colour = false;      // live, and neither NO_COLOR nor TERM=dumb
  size_t width = 100;       // columns; at most 100, beyond which prose is hard to read
  size_t full_width = 100;  // columns of the terminal, for tables
};
// stdout and stderr of this process.
Terminal standard_terminal();

enum class Colour { kNone, kGreen, kYellow, kRed, kDim };
std::string paint(const Terminal& terminal, Colour colour, const std::string& text);
Colour colour_of_state(std::string_view state);

// Control characters, escape sequences and bytes that are not UTF-8 become '?'.
std::string printable(std::string_view text);
// Columns of a printable text.
size_t columns(std::string_view text);
// At most `width` columns; what was cut ends in "...".
std::string shorten(const std::string& text, size_t width);

// 950, "12.3k", "4.56M"; three significant digits.
std::string short_number(double value);
// Four decimals, as people compare losses.
std::string format_loss(double loss);

// "12.34 %"; "-" of nothing.
std::string format_percent(int64_t part, int64_t whole);

// "1 fault", "2 faults".
std::string counted(int64_t count, const std::string& word);

// Rows of cells, columns aligned; on a terminal the last column is cut to fit. A pipe gets all of
// it.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add(std::vector<std::string> row, Colour colour = Colour::kNone);
  // The colour follows the cell under the column named "STATE", if there is one.
  void print(const Terminal& terminal) const;
  // The same without colour, header first, the last column cut to fit `width`.
  struct Line {
    std::string text;
    Colour colour;  // of its row
  };
  std::vector<Line> lines(size_t width) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    Colour colour;
  };
  std::vector<size_t> widths() const;
  // `painted_on`: where the cell of the state is in colour; nullptr = nowhere.
  std::string text_of(const Row& row, const std::vector<size_t>& widths, size_t width,
                      const Terminal* painted_on) const;

  std::vector<std::string> header_;
  std::vector<Row> rows_;
};

}  // namespace hpctl
