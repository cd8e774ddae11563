// SPDX-License-Identifier: Apache-2.0
// What a batch script would run, read without running it. The reader knows the part of bash that
// such scripts are made of: assignments, arrays, export, ${NAME:-VALUE}, $((A * B)), `if` with
// simple tests, && and ||. Everything else is named with its line and never guessed: loops,
// functions, conditions that depend on the machine, values that a command prints.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hpctl::migrate {

struct ShellWord {
  std::string text;
  bool is_known = true;  // false: a part of it is known to the shell alone
};

struct ShellCommand {
  int line = 0;
  std::string text;  // as in the script
  std::vector<ShellWord> words;
};

struct ShellVariable {
  std::string name;
  ShellWord value;
  int line = 0;
};

struct ShellScript {
  std::vector<std::pair<int, std::string>> directives;  // "--nodes=2" of #SBATCH lines
  std::vector<ShellVariable> exports;                   // in order
  std::vector<ShellCommand> commands;
  std::vector<std::pair<int, std::string>> unreadable;  // lines, and why
};

ShellScript read_shell_script(const std::string& text);

}  // namespace hpctl::migrate
