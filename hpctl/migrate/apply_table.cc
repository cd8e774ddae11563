// SPDX-License-Identifier: Apache-2.0
#include "hpctl/migrate/apply_table.h"

#include <algorithm>
#include <optional>

#include "common/jobfile/nearest_word.h"

namespace hpctl::migrate {
namespace {

using enum Fate;

// Ours for a word of theirs; nullopt = not in `words`.
std::optional<std::string> find_word(std::string_view words, const std::string& theirs) {
  while (!words.empty()) {
    const size_t bar = words.find('|');
    const std::string_view pair = words.substr(0, bar);
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) == theirs) return std::string(pair.substr(equals + 1));
    words = bar == std::string_view::npos ? "" : words.substr(bar + 1);
  }
  return std::nullopt;
}

std::string their_words(std::string_view words) {
  std::string list;
  while (!words.empty()) {
    const size_t bar = words.find('|');
    const std::string_view pair = words.substr(0, bar);
    list += (list.empty() ? "" : ", ") + std::string(pair.substr(0, pair.find('=')));
    words = bar == std::string_view::npos ? "" : words.substr(bar + 1);
  }
  return list;
}

std::string with_note(std::string text, const Row& row) {
  return row.note.empty() ? text : text + ": " + std::string(row.note);
}

// Numbers and flags stay as they are.
std::string yaml_value(const std::string& text) {
  return number_of(text) || is_one_of(text, "true|false") ? text : yaml_text(text);
}

void take_quantity(const Row& row, const Given& given, Draft& draft) {
  const std::optional<double> number = number_of(given.text);
  if (!number) {
    return draft.report(kImpossible, given, "expected a number, found \"" + given.text + "\"");
  }
  draft.set_number(row.quantity, *number, given);
  draft.report(row.fate, given, with_note(std::string(row.ours), row));
}

void take_value(const Row& row, const Given& given, Draft& draft) {
  std::string yaml = yaml_value(given.text);
  if (!row.words.empty()) {
    const std::optional<std::string> word = find_word(row.words, given.text);
    if (!word) {
      return draft.report(
          kImpossible, given,
          with_note("\"" + given.text + "\" is none of " + their_words(row.words), row));
    }
    if (word->empty()) {
      return draft.report(kUnneeded, given, with_note(given.text + " is what happens here", row));
    }
    yaml = *word;
  }
  if (row.ours.empty()) return draft.report(row.fate, given, std::string(row.note));
  draft.set(row.ours, yaml, given);
  draft.report(row.fate, given, with_note(std::string(row.ours) + " = " + yaml, row));
}

// $SLURM_JOB_NUM_NODES and its like repeat what the #SBATCH lines say.
bool is_of_slurm(std::string_view text) {
  return text.starts_with("$SLURM_") || text.starts_with("${SLURM_");
}

void take_given(const Row& row, const Given& given, const Document& document, Draft& draft) {
  const bool is_off = given.text == "null" || is_one_of(given.text, row.off) ||
                      (row.fate == kImpossible && given.text.empty());
  if (is_off) return draft.report(kUnneeded, given, "off");
  if (!given.is_known && row.fate != kUnneeded && !is_of_slurm(given.text)) {
    if (!row.ours.empty() && draft.is_given(row.ours)) {
      return draft.report(kUnneeded, given, "--set says it");
    }
    return draft.report(
        kImpossible, given,
        given.text + " is known to the shell alone; write the value into the script" +
            (row.ours.empty() ? "" : ", or --set " + std::string(row.ours) + "=VALUE"));
  }
  if (row.take != nullptr) return row.take(given, document, draft);
  if (row.fate == kUnneeded || row.fate == kImpossible) {
    return draft.report(row.fate, given, std::string(row.note));
  }
  if (row.quantity != Quantity::kNone) return take_quantity(row, given, draft);
  take_value(row, given, draft);
}

// DeepSpeed's word for a value that the arguments of the Trainer decide.
bool take_auto(const Row& row, const Given& given, bool has_trainer, Draft& draft) {
  if (given.text != "auto" || row.fate == kUnneeded) return false;
  if (has_trainer) {
    draft.report(kUnneeded, given, "TrainingArguments say it");
  } else {
    draft.report(kImpossible, given,
                 "auto: the arguments of the Trainer decide it; give TrainingArguments too");
  }
  return true;
}

std::string unknown_key(const Document& document, const std::string& key) {
  std::vector<std::string> known;
  for (const Row& row : document.tool->rows) known.emplace_back(row.key);
  const auto nearest = nearest_word(key, known);
  return document.file + ": " + key + ": hpctl does not know this key of " +
         std::string(document.tool->name) +
         (nearest ? "; did you mean " + *nearest + "?" : "; remove it, or use --as command");
}

// "rope_scaling": null, of which the rows have the keys.
bool is_empty_section(const Tool& tool, const Given& given) {
  if (!given.text.empty() && given.text != "null") return false;
  return std::any_of(tool.rows.begin(), tool.rows.end(),
                     [&](const Row& row) { return row.key.starts_with(given.key + "."); });
}

bool has_prefix(const Document& document, std::string_view prefix) {
  return std::any_of(document.values.begin(), document.values.end(),
                     [&](const Given& given) { return given.key.starts_with(prefix); });
}

bool is_decided(const Row& row, const Draft& draft) {
  if (row.quantity != Quantity::kNone) return draft.number(row.quantity).has_value();
  return !row.ours.empty() && draft.find(row.ours) != nullptr;
}

Given default_of(const Tool& tool, const Row& row) {
  Given given;
  given.key = row.key;
  given.text = row.initial;
  given.source = "default of " + std::string(tool.name) + "'s " + given.key;
  given.is_default = true;
  for (std::string rest = given.text;;) {
    const size_t comma = rest.find(',');
    given.items.push_back(rest.substr(0, comma));
    if (comma == std::string::npos) return given;
    rest.erase(0, comma + 1);
  }
}

void take_defaults(const Document& document, bool has_trainer, Draft& draft) {
  const Tool& tool = *document.tool;
  for (const Row& row : tool.rows) {
    if (row.initial.empty() || !document.text_of(row.key).empty() || is_decided(row, draft)) {
      continue;
    }
    if (row.initial_with == kAlone ? has_trainer : !has_prefix(document, row.initial_with)) {
      continue;
    }
    take_given(row, default_of(tool, row), document, draft);
  }
  for (const Habit& habit : tool.habits) {
    if (!has_prefix(document, habit.with)) continue;
    Given given;
    given.source = habit.why;
    given.is_default = true;
    draft.set(habit.ours, std::string(habit.yaml), given);
  }
}

}  // namespace

std::vector<std::string> apply_table(const Document& document, bool has_trainer, Draft& draft) {
  std::vector<std::string> unknown;
  for (const Given& given : document.values) {
    if (given.key.starts_with('(')) continue;  // a fact about the file, no key of it
    const Row* row = find_row(*document.tool, given.key);
    if (row == nullptr && is_empty_section(*document.tool, given)) {
      draft.report(kUnneeded, given, "off");
    } else if (row == nullptr) {
      unknown.push_back(unknown_key(document, given.key));
    } else if (document.tool != &deepspeed_tool() || !take_auto(*row, given, has_trainer, draft)) {
      take_given(*row, given, document, draft);
    }
  }
  take_defaults(document, has_trainer, draft);
  if (document.tool->finish != nullptr) document.tool->finish(document, draft);
  return unknown;
}

}  // namespace hpctl::migrate
