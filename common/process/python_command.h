// SPDX-License-Identifier: Apache-2.0
// A command line that starts Python, taken apart as Python's own main does it
// (https://docs.python.org/3/using/cmdline.html). It may name Python itself, or a script that names
// Python in its first line.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/base/word_enum.h"

namespace hpctl {

// The form of the code that Python runs as __main__.
enum class PythonMain { kScript, kModule, kCode };
constexpr auto words_of(PythonMain) {
  return std::to_array<const char*>({"script", "module", "code"});
}

struct PythonCommand {
  std::vector<std::string> interpreter;  // the program, what stands before it, and its options
  PythonMain main = PythonMain::kScript;
  std::string target;  // the script's path, the module's name, or the code itself
  std::vector<std::string> arguments;
};

// nullopt: `command` does not start Python, or in a way that another process cannot take over: it
// reads the program from its standard input, is interactive, or has an option that is not known
// here. Python is the first word, or stands after the first "--", as in `uv run -- python x.py`.
std::optional<PythonCommand> python_command(const std::vector<std::string>& command);

// Returns whether the program of `command` may be a script, that is, a path.
bool may_be_script(const std::vector<std::string>& command);
// The same of a script, from its first line (without the newline), as the kernel and env(1) read
// it:
// "#!/usr/bin/python3 -u", "#!/usr/bin/env python3", "#!/usr/bin/env -S python3 -u".
// Precondition: may_be_script(command).
std::optional<PythonCommand> python_command_by(const std::string& first_line,
                                               const std::vector<std::string>& command);
// python_command(), or that by the first line of the script, which is looked for in `directory`
// where its path is not a whole one.
std::optional<PythonCommand> python_command_in(const std::string& directory,
                                               const std::vector<std::string>& command);

// Returns whether `import` accepts `name`: identifiers with dots between.
bool is_module_name(const std::string& name);

// The limit of modules that a standby Python imports.
inline constexpr size_t kMostStandbyImports = 32;

}  // namespace hpctl
