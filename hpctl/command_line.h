// SPDX-License-Identifier: Apache-2.0
// Arguments of one call: verb, options, positional arguments. Each verb declares what it takes; all
// else is refused with the nearest known word.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "hpctl/exit_codes.h"
#include "hpctl/terminal.h"

namespace hpctl {

struct Option {
  const char* name;                  // "--rank"
  const char* letter = nullptr;      // "-f"
  const char* value_name = nullptr;  // set when it takes a value: "R"
  bool repeats = false;              // each value counts, not only the last one
};

struct Invocation {
  Terminal& terminal;
  std::vector<std::string> arguments;          // positional
  std::map<std::string, std::string> options;  // by long name; "" for those without a value
  // Every value of an option that may be repeated, in order.
  std::map<std::string, std::vector<std::string>> repeated = {};

  bool has(const std::string& option) const { return options.contains(option); }
  bool json() const { return has("--json"); }
};

struct Verb {
  const char* name;
  const char* arguments;  // "FILE [options]"
  const char* summary;    // one line of `hpctl --help`
  const char* help;       // the rest of `hpctl VERB --help`
  size_t min_arguments;
  size_t max_arguments;
  std::vector<Option> options;  // besides --json and --help, which every verb has
  int (*run)(Invocation& invocation);
  // Words that may stand first; where the verb cannot be called without arguments, one of them
  // does.
  std::vector<const char*> actions = {};
  int usage_exit = kExitUsage;  // exit status of wrong arguments
};

// Those of the verb, and those that every verb has.
std::vector<Option> options_of(const Verb& verb);

// Fills arguments and options; an error is kInvalidArgument with one line for the user.
Outcome parse_arguments(const Verb& verb, const std::vector<std::string>& words,
                        Invocation& invocation);

// The value of an option as a whole number in [low, high]; nullopt when it was not given.
Result<std::optional<int64_t>> number_option(const Invocation& invocation, const std::string& name,
                                             int64_t low, int64_t high);

// The value of --since as a wall clock time: a duration before now, or a time (UTC); nullopt when
// it was not given.
Result<std::optional<int64_t>> since_option(const Invocation& invocation);

// Runs one command: `words` are the arguments after the program's name. Returns the exit status.
int run_command_line(const std::vector<std::string>& words, Terminal& terminal);

// "hpctl: MESSAGE" on the error stream; returns the exit status of the error.
int report(const Terminal& terminal, const Error& error);
// The same for wrong arguments of a verb, with where to read more; returns kExitUsage.
int report_usage(const Terminal& terminal, const std::string& verb, const std::string& message);

}  // namespace hpctl
