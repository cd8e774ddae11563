// SPDX-License-Identifier: Apache-2.0
#include "common/process/python_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <utility>

#include "common/base/fd.h"

namespace hpctl {
namespace {

constexpr std::string_view kOptionsAlone = "bBdEIOPqsSuv";  // may stand together, as in -uO
constexpr std::string_view kOptionsWithValue = "WX";        // the rest of the word, or the next
constexpr size_t kFirstLineBytes = 256;                     // that the kernel reads
constexpr const char* kBlanks = " \t";

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

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);  // npos + 1 is 0
}

// How env(1) splits the words after its -S, without quotes, escapes or variables.
std::vector<std::string> split_plainly(std::string_view text) {
  if (text.find_first_of("'\"\\$#") != std::string_view::npos) return {};
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// The interpreter of a first line and its options: all that follows the path is one word.
std::vector<std::string> interpreter_of(std::string_view line) {
  if (!line.starts_with("#!")) return {};
  line = trimmed(line.substr(2));
  const size_t end = std::min(line.find_first_of(kBlanks), line.size());
  const std::string_view program = line.substr(0, end);
  const std::string_view word = trimmed(line.substr(end));
  if (program == "/usr/bin/env" || program == "/bin/env") {
    if (word.starts_with("-S")) return split_plainly(word.substr(2));
    return {std::string(word)};
  }
  std::vector<std::string> words = {std::string(program)};
  if (!word.empty()) words.emplace_back(word);
  return words;
}

// "" where it has none that ends in what the kernel reads of a file.
std::string first_line_of(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::array<char, kFirstLineBytes> begin{};
  const ssize_t n = file.valid() ? ::read(file.get(), begin.data(), begin.size()) : 0;
  if (n <= 0) return "";
  const std::string_view text(begin.data(), static_cast<size_t>(n));
  const size_t end = text.find('\n');
  if (end == std::string_view::npos && text.size() == kFirstLineBytes) return "";
  return std::string(text.substr(0, end));
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
        // Letters before -m or -c in the same word are still options: python -um x.
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

bool may_be_script(const std::vector<std::string>& command) {
  return !command.empty() && command.front().find('/') != std::string::npos;
}

std::optional<PythonCommand> python_command_by(const std::string& first_line,
                                               const std::vector<std::string>& command) {
  std::vector<std::string> words = interpreter_of(first_line);
  if (words.empty() || !is_python(words.front())) return std::nullopt;
  words.insert(words.end(), command.begin(), command.end());
  return Reader(words, 0).read();
}

std::optional<PythonCommand> python_command_in(const std::string& directory,
                                               const std::vector<std::string>& command) {
  auto python = python_command(command);
  if (python || !may_be_script(command)) return python;
  const std::string& script = command.front();
  const std::string path = script.starts_with('/') ? script : directory + "/" + script;
  return python_command_by(first_line_of(path), command);
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
