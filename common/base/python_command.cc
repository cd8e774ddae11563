// SPDX-License-Identifier: Apache-2.0
#include "common/base/python_command.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace hpctl {
namespace {

constexpr std::string_view kOptionsAlone = "bBdEIOPqsSuv";  // may stand together, as in -uO
constexpr std::string_view kOptionsWithValue = "WX";        // the rest of the word, or the next

// python, python3, python3.11, python3.13t.
bool is_python(std::string_view program) {
  program.remove_prefix(program.rfind('/') + 1);  // npos + 1 is 0
  if (!program.starts_with("python")) return false;
  program.remove_prefix(std::string_view("python").size());
  if (program.ends_with('t')) program.remove_suffix(1);
  return program.find_first_not_of("0123456789.") == std::string_view::npos;
}

size_t place_of_python(const std::vector<std::string>& command) {
  if (!command.empty() && is_python(command.front())) return 0;
  const auto dashes = std::find(command.begin(), command.end(), "--");
  if (dashes == command.end() || dashes + 1 == command.end()) return command.size();
  return is_python(dashes[1]) ? static_cast<size_t>(dashes + 1 - command.begin()) : command.size();
}

bool is_identifier(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (name.empty() || !is_letter(name.front())) return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

// Reads the words of one command line from left to right.
class Reader {
 public:
  Reader(const std::vector<std::string>& command, size_t at) : command_(command), at_(at) {}

  std::optional<PythonCommand> read() {
    result_.interpreter.assign(command_.begin(),
                               command_.begin() + static_cast<std::ptrdiff_t>(at_) + 1);
    for (++at_; at_ < command_.size(); ++at_) {
      const std::string& word = command_[at_];
      if (word.size() < 2 || word.front() != '-') {
        if (word.empty() || word == "-") return std::nullopt;
        return finish(PythonMain::kScript, word);
      }
      const size_t before = at_;
      const auto main = read_options(word);
      if (!main) return std::nullopt;
      if (*main == Main::kModule && value_.empty()) return std::nullopt;
      if (*main != Main::kNotYet) {
        // What stood before -m or -c in the same word is still an option: python -um x.
        if (const std::string alone = word.substr(0, options_end_); alone.size() > 1) {
          result_.interpreter.push_back(alone);
        }
        return finish(*main == Main::kModule ? PythonMain::kModule : PythonMain::kCode, value_);
      }
      result_.interpreter.insert(result_.interpreter.end(),
                                 command_.begin() + static_cast<std::ptrdiff_t>(before),
                                 command_.begin() + static_cast<std::ptrdiff_t>(at_) + 1);
    }
    return std::nullopt;  // Python without a program is interactive
  }

 private:
  enum class Main { kNotYet, kModule, kCode };

  // One word that begins with a dash, and the next where it is an option's value. nullopt: it has
  // one that is not known, or lacks its value.
  std::optional<Main> read_options(const std::string& word) {
    for (size_t i = 1; i < word.size(); ++i) {
      if (kOptionsAlone.find(word[i]) != std::string_view::npos) continue;
      const bool is_main = word[i] == 'm' || word[i] == 'c';
      if (!is_main && kOptionsWithValue.find(word[i]) == std::string_view::npos) {
        return std::nullopt;
      }
      options_end_ = i;
      if (i + 1 < word.size()) {
        value_ = word.substr(i + 1);
      } else {
        if (++at_ == command_.size()) return std::nullopt;
        value_ = command_[at_];
      }
      if (!is_main) return Main::kNotYet;
      return word[i] == 'm' ? Main::kModule : Main::kCode;
    }
    return Main::kNotYet;
  }

  PythonCommand finish(PythonMain main, std::string target) {
    result_.main = main;
    result_.target = std::move(target);
    result_.arguments.assign(command_.begin() + static_cast<std::ptrdiff_t>(at_) + 1,
                             command_.end());
    return std::move(result_);
  }

  const std::vector<std::string>& command_;
  size_t at_;
  size_t options_end_ = 0;
  std::string value_;
  PythonCommand result_;
};

}  // namespace

std::optional<PythonCommand> python_command(const std::vector<std::string>& command) {
  const size_t place = place_of_python(command);
  if (place == command.size()) return std::nullopt;
  return Reader(command, place).read();
}

bool is_module_name(const std::string& name) {
  for (std::string_view rest = name;;) {
    const size_t dot = rest.find('.');
    if (!is_identifier(rest.substr(0, dot))) return false;
    if (dot == std::string_view::npos) return true;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace hpctl
