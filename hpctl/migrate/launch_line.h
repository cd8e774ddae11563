// SPDX-License-Identifier: Apache-2.0
// A line of a script that starts the training: srun and its options, a launcher and its options,
// the program and its arguments.
#pragma once

#include <string>
#include <vector>

#include "hpctl/migrate/key_table.h"
#include "hpctl/migrate/shell_script.h"

namespace hpctl::migrate {

struct LaunchLine {
  std::vector<Given> srun;
  std::vector<Given> launcher;
  bool has_launcher = false;
  std::vector<ShellWord> program;
};

// Of two lines of a script, the later kind is the training. kSrunOther: neither a launcher nor
// Python, as `srun hostname`.
enum class LaunchKind { kNone, kPython, kLauncher, kSrunOther, kSrun };
LaunchKind launch_kind(const ShellCommand& command);

// `source`: before the option in messages.
LaunchLine split_launch(const ShellCommand& command, const std::string& source);
// Marks the values that have an unknown word of the line.
void mark_unknown(const std::vector<ShellWord>& words, std::vector<Given>& values);
// An option of sbatch or srun, "-N2" too, with `next` as its value where it has none. Returns
// whether `next` was used.
bool read_slurm_option(const std::string& word, const std::string* next, const std::string& source,
                       std::vector<Given>& values);

}  // namespace hpctl::migrate
