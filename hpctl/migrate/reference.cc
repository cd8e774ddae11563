// SPDX-License-Identifier: Apache-2.0
// The tables of docs/migrate.md.
#include <string>

#include "hpctl/migrate/migrate.h"

namespace hpctl::migrate {
namespace {

// For a cell of a table.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

std::string described(const Row& row) {
  std::string text;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  };
  if (!row.ours.empty()) add("`" + std::string(row.ours) + "`");
  std::string words;
  for (std::string_view rest = row.words; !rest.empty();) {
    const size_t bar = rest.find('|');
    const std::string_view pair = rest.substr(0, bar);
    const size_t equals = pair.find('=');
    const std::string theirs(pair.substr(0, equals));
    const std::string ours(pair.substr(equals + 1));
    words +=
        (words.empty() ? "" : ", ") + theirs + (ours.empty() || ours == theirs ? "" : " → " + ours);
    rest = bar == std::string_view::npos ? "" : rest.substr(bar + 1);
  }
  add(words);
  add(std::string(row.note));
  if (!row.initial.empty()) add("default " + std::string(row.initial));
  if (!row.off.empty()) add("nothing to do for " + cell(row.off));
  return text;
}

}  // namespace

std::string migration_reference() {
  std::string text;
  for (const Tool* tool : tools()) {
    text += (text.empty() ? "### " : "\n### ") + std::string(tool->name) + ": " +
            std::string(tool->file) + "\n\n" + "| key | what becomes of it | |\n|---|---|---|\n";
    for (const Row& row : tool->rows) {
      // Without backticks: some are names of ours with another meaning.
      text +=
          "| " + std::string(row.key) + " | " + to_word(row.fate) + " | " + described(row) + " |\n";
    }
    for (const Habit& habit : tool->habits) {
      text += "| | taken | `" + std::string(habit.ours) + ": " + std::string(habit.yaml) + "`; " +
              std::string(habit.why) + " |\n";
    }
  }
  return text;
}

}  // namespace hpctl::migrate
