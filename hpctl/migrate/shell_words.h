// SPDX-License-Identifier: Apache-2.0
// The statements of a shell script and the words of each, with variables put in.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hpctl/migrate/shell_script.h"

namespace hpctl::migrate {

struct ShellValue {
  std::vector<ShellWord> items;  // of an array; else one
  bool is_array = false;
};
using ShellVariables = std::map<std::string, ShellValue>;

struct ShellStatement {
  int line = 0;
  std::string before;  // the operator before it: "", "&&", "||", "|"
  std::string text;
  std::vector<std::string> raw;  // words as written, quotes and all; an array is NAME=( … )
};

// Splits a text without looking into words.
class ShellReader {
 public:
  explicit ShellReader(std::string_view text) : text_(text) {}
  // nullopt at the end.
  std::optional<ShellStatement> next();
  // Lines that begin with #SBATCH, as they are passed.
  const std::vector<std::pair<int, std::string>>& directives() const { return directives_; }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  char take();
  void skip_comment();
  void skip_here_document(const std::string& end);
  std::string read_word();
  void read_quoted(char quote, std::string& word);
  void read_nested(char open, char close, std::string& word);

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  std::string before_;
  std::string here_end_;
  std::vector<std::pair<int, std::string>> directives_;
};

// The words that a raw word becomes: none for an empty variable, several for an array.
std::vector<ShellWord> expand_word(std::string_view raw, ShellVariables& variables);
// As one word, as in an assignment.
ShellWord expand_whole(std::string_view raw, ShellVariables& variables);
// The word as bash reads it again; what is not known stays for bash to expand.
std::string shell_quoted(const ShellWord& word);
// Raw words between the brackets of "NAME=( … )".
std::vector<std::string> raw_words(std::string_view text);

}  // namespace hpctl::migrate
