// SPDX-License-Identifier: Apache-2.0
#include "hpctl/completion.h"

#include <sstream>

#include "common/base/join.h"
#include "hpctl/bash_completion.h"
#include "hpctl/fish_completion.h"
#include "hpctl/zsh_completion.h"

namespace hpctl {
namespace {

// What the words after a verb, or the value of an option, stand for.
struct Operands {
  bool files = false;
  bool jobs = false;
};

// By the names in a usage: "[JOB | quarantine NODE]", "PLAN".
Operands operands_of(const std::string& usage) {
  Operands operands;
  std::string name;
  for (const char c : usage + " ") {
    if (c >= 'A' && c <= 'Z') {
      name += c;
      continue;
    }
    for (const char* file : {"FILE", "DIR", "IN", "PREFIX", "PLAN", "T"}) {
      operands.files = operands.files || name == file;
    }
    operands.jobs = operands.jobs || name == "JOB";
    name.clear();
  }
  return operands;
}

// Of the arguments without the values of options: "FILE [--chaos PLAN]" is one FILE.
Operands operands_of(const Verb& verb) {
  std::istringstream words(verb.arguments);
  std::string positional;
  bool of_option = false;
  for (std::string word; words >> word;) {
    const bool is_option = word.find("--") != std::string::npos;
    if (!is_option && !of_option) positional += word + " ";
    of_option = is_option && word.back() != ']';
  }
  return operands_of(positional);
}

bool wants_file(const Option& option) {
  return option.value_name != nullptr && operands_of(std::string(option.value_name)).files;
}

std::string spaced(const std::vector<const char*>& words) {
  return join({words.begin(), words.end()}, " ");
}

// One word in all three shells.
std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

void add_bash_verb(const Verb& verb, std::ostream& out) {
  std::string options;
  std::string valued;
  std::string paths;
  for (const Option& option : options_of(verb)) {
    for (const char* spelling : {option.name, option.letter}) {
      if (spelling == nullptr) continue;
      const std::string word = (options.empty() ? "" : " ") + std::string(spelling);
      options += word;
      if (option.value_name != nullptr) valued += " " + std::string(spelling);
      if (wants_file(option)) paths += " " + std::string(spelling);
    }
  }
  const Operands operands = operands_of(verb);
  out << "    " << verb.name << ")\n      actions=" << shell_word(spaced(verb.actions))
      << "\n      options=" << shell_word(options) << "\n      valued=" << shell_word(valued)
      << "\n      paths=" << shell_word(paths) << "\n      operands="
      << shell_word(std::string(operands.files ? "files" : "") + (operands.jobs ? " jobs" : ""))
      << "\n      ;;\n";
}

}  // namespace

std::string bash_completion(const std::vector<Verb>& verbs) {
  std::ostringstream out;
  out << kBashCompletion
      << "# valued: options with a value; of those, paths: with a file.\n"
         "_hpctl_verb() {\n  actions='' options='' valued='' paths='' operands=''\n"
         "  case $1 in\n";
  Verb help = {"help", "", "", "", 0, 0, {}, nullptr, {}};
  for (const Verb& verb : verbs) help.actions.push_back(verb.name);
  Verb none = help;
  none.name = "''";
  none.options.push_back({"--version"});
  none.actions.push_back("help");
  add_bash_verb(none, out);
  add_bash_verb(help, out);
  for (const Verb& verb : verbs) add_bash_verb(verb, out);
  out << "  esac\n}\n";
  return out.str();
}

namespace {

// A name and what it is, as _describe takes it.
std::string described(const std::string& name, const std::string& summary) {
  std::string text = name + ":";
  for (const char c : summary) text += (c == ':' ? "\\" : "") + std::string(1, c);
  return shell_word(text);
}

void add_zsh_verb(const Verb& verb, std::ostream& out) {
  out << "    " << verb.name << ")\n      _arguments";
  for (const Option& option : options_of(verb)) {
    for (const char* spelling : {option.name, option.letter}) {
      if (spelling == nullptr) continue;
      const bool is_long = spelling == option.name;
      std::string specification = spelling;
      if (option.value_name != nullptr) {
        specification += std::string(is_long ? "=" : "") + ":" + option.value_name + ":" +
                         (wants_file(option) ? "_files" : "");
      }
      out << " \\\n        " << shell_word(specification);
    }
  }
  const Operands operands = operands_of(verb);
  const std::string others =
      std::string(operands.jobs ? "_hpctl_jobs; " : "") + (operands.files ? "_files; " : "");
  if (!verb.actions.empty()) {
    // Where the verb can be called without its actions, something else may stand there.
    out << " \\\n        "
        << shell_word("1: :{ compadd -- " + spaced(verb.actions) + "; " +
                      (verb.min_arguments == 0 ? others : "") + "}");
  }
  if (!others.empty()) out << " \\\n        " << shell_word("*: :{ " + others + "}");
  out << "\n      ;;\n";
}

}  // namespace

std::string zsh_completion(const std::vector<Verb>& verbs) {
  std::ostringstream out;
  out << kZshCompletion << "_hpctl_verbs() {\n  local -a verbs\n  verbs=(\n";
  for (const Verb& verb : verbs) out << "    " << described(verb.name, verb.summary) << "\n";
  out << "    'help:show the help of a verb'\n  )\n  _describe verb verbs\n}\n\n"
         "_hpctl_verb() {\n  case $1 in\n    help) _hpctl_verbs ;;\n";
  for (const Verb& verb : verbs) add_zsh_verb(verb, out);
  // By compinit it is called as a function, by eval it is not.
  out << "  esac\n}\n\n"
         "if [[ $funcstack[1] == _hpctl ]]; then\n  _hpctl \"$@\"\nelse\n"
         "  compdef _hpctl hpctl\nfi\n";
  return out.str();
}

namespace {

void add_fish_verb(const Verb& verb, std::ostream& out) {
  const std::string seen = "__fish_seen_subcommand_from ";
  const std::string command = "complete -c hpctl -n ";
  const std::string of_verb = command + shell_word(seen + verb.name);
  out << "\n"
      << command << "__fish_use_subcommand -a " << verb.name << " -d " << shell_word(verb.summary)
      << "\n"
      << command << shell_word(seen + "help") << " -a " << verb.name << "\n";
  for (const Option& option : options_of(verb)) {
    out << of_verb << " -l " << std::string(option.name).substr(2);
    if (option.letter != nullptr) out << " -s " << option.letter + 1;
    if (option.value_name != nullptr) out << (wants_file(option) ? " -r -F" : " -x");
    out << "\n";
  }
  if (!verb.actions.empty()) {
    const std::string actions = spaced(verb.actions);
    out << command << shell_word(seen + verb.name + "; and not " + seen + actions) << " -a "
        << shell_word(actions) << "\n";
  }
  const Operands operands = operands_of(verb);
  if (operands.jobs) out << of_verb << " -a '(__hpctl_jobs)'\n";
  if (operands.files) out << of_verb << " -F\n";
}

}  // namespace

std::string fish_completion(const std::vector<Verb>& verbs) {
  std::ostringstream out;
  out << kFishCompletion;
  for (const Verb& verb : verbs) add_fish_verb(verb, out);
  return out.str();
}

}  // namespace hpctl
