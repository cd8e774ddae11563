// SPDX-License-Identifier: Apache-2.0
// The files that `hpctl migrate` is given: which program each is of, and its values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "hpctl/migrate/draft.h"
#include "hpctl/migrate/key_table.h"

namespace hpctl::migrate {

// A line of a script that only a shell can carry out, before the program starts.
struct SetupLine {
  int line = 0;
  std::string text;
  std::string source;    // "train.sbatch:12"
  bool is_known = true;  // false: a word of it is known to the shell alone
};

struct Input {
  std::vector<Document> documents;
  std::vector<std::pair<std::string, Value>> variables;  // exports of a script
  std::vector<SetupLine> setup;                          // source, module load, computed exports
  std::vector<SetupLine> hooks;                          // other commands before the program
  std::vector<ReportLine> impossible;                    // lines that cannot be read
  std::vector<ReportLine> unneeded;
  // The program of a script with its arguments, without a launcher.
  std::vector<std::string> program;
  std::string program_source;
  bool program_is_known = true;     // false: an argument is known to the shell alone
  bool program_is_assumed = false;  // the one that such a configuration is for
};

// Adds what a file says. kInvalidArgument: it is of no program that hpctl knows.
Outcome read_input(const std::string& path, Input& input);

}  // namespace hpctl::migrate
