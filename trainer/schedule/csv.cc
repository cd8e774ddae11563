// SPDX-License-Identifier: Apache-2.0
#include "trainer/schedule/csv.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace hpctl {
namespace {

// Above any real pipeline, so that a typing error cannot make later tables huge.
constexpr int32_t kLargestIndex = 1 << 16;

Error cell_error(size_t row, size_t column, std::string_view cell, const std::string& why) {
  return Error{ErrorCode::kInvalidArgument, "row " + std::to_string(row + 1) + ", column " +
                                                std::to_string(column + 1) + ": \"" +
                                                std::string(cell) + "\": " + why};
}

std::string_view trimmed_cell(std::string_view cell) {
  const size_t first = cell.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return cell.substr(first, cell.find_last_not_of(" \t") - first + 1);
}

std::optional<int32_t> index_of(std::string_view digits) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  if (value < 0 || value > kLargestIndex) return std::nullopt;
  return value;
}

std::optional<ActionKind> kind_of(std::string_view name) {
  for (int i = 1; i <= static_cast<int>(ActionKind::kReduceGrad); ++i) {
    if (kind_name(static_cast<ActionKind>(i)) == name) return static_cast<ActionKind>(i);
  }
  return std::nullopt;
}

Result<Action> parse_action_cell(std::string_view cell, size_t row, size_t column) {
  if (cell.empty()) return Action{};
  if (cell.find("OVERLAP_F_B") != std::string_view::npos) {
    return cell_error(row, column, cell,
                      "OVERLAP_F_B is not supported; write the two actions in cells of their own");
  }
  constexpr std::string_view kDigits = "0123456789";
  const size_t name_begin = std::min(cell.find_first_not_of(kDigits), cell.size());
  const size_t name_end = cell.find_last_not_of(kDigits) + 1;
  const auto stage = index_of(cell.substr(0, name_begin));
  if (!stage || name_end <= name_begin) {
    return cell_error(row, column, cell,
                      "an action is a stage, a kind and a micro-batch, such as 2F0");
  }
  const auto kind = kind_of(cell.substr(name_begin, name_end - name_begin));
  if (!kind) {
    return cell_error(row, column, cell,
                      "unknown kind of action; use F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, "
                      "UNSHARD, RESHARD or REDUCE_GRAD");
  }
  const std::string_view digits = cell.substr(name_end);
  if (!has_micro(*kind)) {
    if (digits.empty()) return Action{*kind, *stage, 0};
    return cell_error(row, column, cell,
                      std::string(kind_name(*kind)) + " has no micro-batch; remove its number");
  }
  const auto micro = index_of(digits);
  if (!micro) {
    return cell_error(
        row, column, cell,
        "a micro-batch must follow the kind, a number up to " + std::to_string(kLargestIndex));
  }
  return Action{*kind, *stage, *micro};
}

}  // namespace

Result<ScheduleTable> parse_schedule_csv(std::string_view text) {
  ScheduleTable table;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    std::vector<Action> row;
    for (bool more = true; more;) {
      const size_t comma = line.find(',');
      more = comma != std::string_view::npos;
      HP_TRY_ASSIGN(Action action, parse_action_cell(trimmed_cell(line.substr(0, comma)),
                                                     table.size(), row.size()));
      row.push_back(action);
      if (more) line.remove_prefix(comma + 1);
    }
    table.push_back(std::move(row));
  }
  if (table.empty()) return Error{ErrorCode::kInvalidArgument, "the schedule table is empty"};
  return table;
}

std::string schedule_csv(const ScheduleTable& table) {
  std::string text;
  for (const auto& row : table) {
    for (size_t column = 0; column < row.size(); ++column) {
      if (column > 0) text += ',';
      text += action_text(row[column]);
    }
    text += "\r\n";
  }
  return text;
}

}  // namespace hpctl
