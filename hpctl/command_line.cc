// SPDX-License-Identifier: Apache-2.0
#include "hpctl/command_line.h"

#include <charconv>

#include "common/base/clock.h"
#include "common/base/quantity.h"
#include "common/jobfile/nearest_word.h"
#include "hpctl/exit_codes.h"
#include "hpctl/foreign_verbs.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace {

constexpr const char* kOverview =
    R"(hpctl trains through faults: it starts a job on every node, watches it, and brings it back.

Usage: hpctl VERB [arguments] [--json] [--help]

)";

constexpr const char* kOverviewEnd = R"(
JOB is a job id or a name. Of several jobs with the name it is the one that
lives, or else the newest, and a line on standard error says which. If several
live, give an id.
Every verb takes --json (for programs) and --help (purpose, examples, exit codes).

Try it:
  hpctl submit examples/quickstart.yaml --local --wait
  hpctl why quickstart

Environment:
  HPCTL_HOME  where jobs, logs and the controller's store are kept (default ~/.hpctl): for local
              jobs on a local disk, for Slurm jobs where all nodes see it; one home for each
  NO_COLOR    no colour, also on a terminal

Exit codes:
  0  done    1  the job failed, or something was not found    2  wrong arguments, job file or data
  3  no controller or scheduler answers    130  interrupted while waiting (the job goes on)
)";

void print_overview(std::ostream& out) {
  out << kOverview << "Verbs:\n";
  for (const Verb& verb : verbs()) {
    std::string name = verb.name;
    name.resize(12, ' ');
    out << "  " << name << verb.summary << "\n";
  }
  out << kOverviewEnd;
}

std::string usage_of(const Verb& verb) {
  const std::string arguments = verb.arguments;
  return std::string("hpctl ") + verb.name + (arguments.empty() ? "" : " " + arguments);
}

void print_help(const Verb& verb, std::ostream& out) {
  out << "hpctl " << verb.name << ": " << verb.summary << "\n\nUsage: " << usage_of(verb) << "\n"
      << verb.help;
}

const Verb* find_verb(const std::string& name) {
  for (const Verb& verb : verbs()) {
    if (name == verb.name) return &verb;
  }
  return nullptr;
}

const Option* find_option(const std::vector<Option>& options, const std::string& word) {
  for (const Option& option : options) {
    if (word == option.name || (option.letter != nullptr && word == option.letter)) return &option;
  }
  return nullptr;
}

Error usage(const std::string& message) { return Error{ErrorCode::kInvalidArgument, message}; }

Error unknown_option(const std::vector<Option>& options, const std::string& word) {
  std::vector<std::string> names;
  for (const Option& option : options) names.emplace_back(option.name);
  const auto nearest = nearest_word(word, names);
  return usage("unknown option " + printable(word) +
               (nearest ? "; did you mean " + *nearest + "?" : ""));
}

int run_unknown_verb(const std::string& word, const Terminal& terminal) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) names.emplace_back(verb.name);
  const std::string ours(find_foreign_verb(word));
  const auto nearest = nearest_word(word, names);
  terminal.err << "hpctl: unknown verb \"" << printable(word) << "\""
               << (!ours.empty() ? "; here it is hpctl " + ours + ";"
                   : nearest     ? "; did you mean " + *nearest + "?"
                                 : ";")
               << " `hpctl --help` lists all\n";
  return kExitUsage;
}

// "" = it is one, or the verb has none.
std::string unknown_action(const Verb& verb, const std::string& word) {
  if (verb.actions.empty()) return "";
  std::string names;
  for (size_t i = 0; i < verb.actions.size(); ++i) {
    if (word == verb.actions[i]) return "";
    const bool last = i + 1 == verb.actions.size();
    names += (i == 0 ? "" : last ? " or " : ", ") + std::string(verb.actions[i]);
  }
  return "expected " + names + "; found \"" + printable(word) + "\"";
}

}  // namespace

std::vector<Option> options_of(const Verb& verb) {
  std::vector<Option> options = verb.options;
  options.push_back(Option{"--json"});
  options.push_back(Option{"--help", "-h"});
  return options;
}

Outcome parse_arguments(const Verb& verb, const std::vector<std::string>& words,
                        Invocation& invocation) {
  const std::vector<Option> known = options_of(verb);
  bool options_ended = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.empty()) return usage("an argument is empty; is a variable of the shell not set?");
    if (options_ended || word.size() < 2 || word[0] != '-') {
      invocation.arguments.push_back(word);
      continue;
    }
    if (word == "--") {
      options_ended = true;
      continue;
    }
    const size_t equals = word.find('=');
    const Option* option = find_option(known, word.substr(0, equals));
    if (option == nullptr) return unknown_option(known, word.substr(0, equals));
    std::string value;
    if (option->value_name == nullptr) {
      if (equals != std::string::npos) return usage(std::string(option->name) + " takes no value");
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    } else {
      return usage(std::string(option->name) + " needs a value " + option->value_name);
    }
    invocation.options[option->name] = value;
    if (option->repeats) invocation.repeated[option->name].push_back(value);
  }
  if (invocation.has("--help")) return Ok{};
  if (invocation.arguments.size() < verb.min_arguments) {
    return usage("too few arguments; usage: " + usage_of(verb));
  }
  if (invocation.arguments.size() > verb.max_arguments) {
    return usage("unexpected argument \"" + printable(invocation.arguments[verb.max_arguments]) +
                 "\"; usage: " + usage_of(verb));
  }
  if (verb.min_arguments > 0) {
    const std::string wrong = unknown_action(verb, invocation.arguments[0]);
    if (!wrong.empty()) return usage(wrong);
  }
  return Ok{};
}

Result<std::optional<int64_t>> number_option(const Invocation& invocation, const std::string& name,
                                             int64_t low, int64_t high) {
  const auto found = invocation.options.find(name);
  if (found == invocation.options.end()) return std::optional<int64_t>();
  const std::string& text = found->second;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return usage(name + ": expected a whole number from " + std::to_string(low) + " to " +
                 std::to_string(high) + ", found \"" + printable(text) + "\"");
  }
  return std::optional<int64_t>(value);
}

Result<std::optional<int64_t>> since_option(const Invocation& invocation) {
  const auto found = invocation.options.find("--since");
  if (found == invocation.options.end()) return std::optional<int64_t>();
  if (const int64_t wall_ms = parse_wall_ms(found->second); wall_ms != 0) {
    return std::optional<int64_t>(wall_ms);
  }
  const auto ago_ms = parse_duration_ms(found->second);
  if (ago_ms.ok()) return std::optional<int64_t>(SystemClock().wall_ms() - *ago_ms);
  return usage(
      "--since: expected a duration such as 30m, or a time (UTC) such as 2026-11-21T09:30:00Z, "
      "found \"" +
      printable(found->second) + "\"");
}

int run_command_line(const std::vector<std::string>& words, Terminal& terminal) {
  size_t at = 0;
  std::vector<std::string> rest;
  while (at < words.size() && words[at] == "--json") rest.push_back(words[at++]);
  if (at == words.size()) {
    print_overview(terminal.err);
    return kExitUsage;
  }
  const std::string& name = words[at];
  if (name == "--help" || name == "-h" || (name == "help" && at + 1 == words.size())) {
    print_overview(terminal.out);
    return kExitOk;
  }
  const bool help_first = name == "help";
  const Verb* verb = find_verb(help_first ? words[at + 1] : name == "--version" ? "version" : name);
  if (verb == nullptr) return run_unknown_verb(help_first ? words[at + 1] : name, terminal);
  if (help_first) {
    print_help(*verb, terminal.out);
    return kExitOk;
  }
  rest.insert(rest.end(), words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
  Invocation invocation{terminal, {}, {}};
  const Outcome parsed = parse_arguments(*verb, rest, invocation);
  if (!parsed.ok()) {
    report_usage(terminal, verb->name, parsed.error().message);
    return verb->usage_exit;
  }
  if (invocation.has("--help")) {
    print_help(*verb, terminal.out);
    return kExitOk;
  }
  const int status = verb->run(invocation);
  terminal.out.flush();
  return status;
}

int report(const Terminal& terminal, const Error& error) {
  terminal.err << "hpctl: " << printable(error.message) << "\n";
  return exit_code_of(error);
}

int report_usage(const Terminal& terminal, const std::string& verb, const std::string& message) {
  terminal.err << "hpctl " << verb << ": " << printable(message) << " (`hpctl " << verb
               << " --help` explains)\n";
  return kExitUsage;
}

}  // namespace hpctl
