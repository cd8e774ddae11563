// SPDX-License-Identifier: Apache-2.0
// The job file while it is made: values with their sources, numbers that are still to be computed
// with, and the report about what became of each key.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hpctl/migrate/key_table.h"

namespace hpctl::migrate {

struct Value {
  std::string yaml;
  std::string source;
  bool is_default = false;
};

struct Number {
  double value = 0;
  std::string source;
  bool is_default = false;
};

struct ReportLine {
  std::string source;  // "train.toml: optimizer.lr"
  std::string text;
};

class Draft {
 public:
  // A default yields to a value of a file, and the first default counts. Two files that contradict
  // each other are reported as not possible.
  void set(std::string_view key, std::string yaml, const Given& given);
  // A value that was computed, or given by --set. It counts over others, and that of --set over
  // all.
  void compute(std::string_view key, std::string yaml, std::string source);
  void erase(std::string_view key) { values_.erase(std::string(key)); }
  // By --set: the key itself, or a section that it is in.
  bool is_given(std::string_view key) const;
  // By set(); nullptr = there is none.
  const Value* find(std::string_view key) const;

  void set_number(Quantity quantity, double value, const Given& given);
  // Counts over what set_number() was told.
  void replace_number(Quantity quantity, double value, const Given& given);
  std::optional<Number> number(Quantity quantity) const;

  // env.set; the last value counts, as in a shell.
  void set_variable(const std::string& name, std::string value, std::string source);
  void add_hook(std::string line, std::string source);
  void set_command(std::vector<std::string> words, std::string source);

  void report(Fate fate, std::string source, std::string text);
  // A default that needs nothing here is not worth a line.
  void report(Fate fate, const Given& given, std::string text);
  const std::vector<ReportLine>& lines(Fate fate) const {
    return lines_[static_cast<size_t>(fate)];
  }
  bool is_possible() const { return lines(Fate::kImpossible).empty(); }

  const std::map<std::string, Value>& values() const { return values_; }
  const std::map<std::string, Value>& variables() const { return variables_; }
  const std::vector<std::pair<std::string, std::string>>& hooks() const { return hooks_; }
  const std::vector<std::string>& command() const { return command_; }
  const std::string& command_source() const { return command_source_; }

 private:
  std::map<std::string, Value> values_;
  std::map<Quantity, Number> numbers_;
  std::map<std::string, Value> variables_;
  std::vector<std::pair<std::string, std::string>> hooks_;
  std::vector<std::string> command_;
  std::string command_source_;
  std::vector<ReportLine> lines_[4];
};

// Of a Row: for a key that the tool's `finish` looks at.
void take_later(const Given& given, const Document& document, Draft& draft);

// A YAML scalar for a text, quoted only where it must be.
std::string yaml_text(const std::string& text);
// The shortest text that reads back as the same number; whole ones without a fraction.
std::string number_text(double value);
// nullopt = `text` is no number. 1_000 is one, as in TOML.
std::optional<double> number_of(std::string_view text);

}  // namespace hpctl::migrate
