// SPDX-License-Identifier: Apache-2.0
#include "hpctl/migrate/shell_script.h"

#include <algorithm>
#include <string_view>

#include "hpctl/migrate/key_table.h"
#include "hpctl/migrate/shell_words.h"

namespace hpctl::migrate {
namespace {

constexpr size_t kMostItems = 4000;            // of an array
constexpr size_t kMostBytes = 16U << 10;       // of a value
constexpr size_t kMostBytesInAll = 16U << 20;  // of commands and exports

// What HyperPod's scripts look for; hpctl needs no option there.
constexpr std::string_view kHyperpodMark = "/opt/sagemaker_cluster";

bool is_assignment(std::string_view raw) {
  const size_t equals = raw.find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  std::string_view name = raw.substr(0, equals);
  if (name.ends_with('+')) name.remove_suffix(1);
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
}

class ScriptReader {
 public:
  explicit ScriptReader(const std::string& text) : reader_(text) {}

  ShellScript read() {
    while (auto statement = reader_.next()) take(*statement);
    script_.directives = reader_.directives();
    return std::move(script_);
  }

 private:
  // A block that begins with if, a loop, a case or a function.
  struct Block {
    std::string_view end;       // "fi", "done", "esac", "}"
    std::optional<bool> truth;  // of the condition; nullopt = not known
    bool was_taken = false;     // a branch before this one
    bool is_active = false;
    bool is_condition = false;  // between if and then
  };

  bool is_active() const {
    return std::all_of(blocks_.begin(), blocks_.end(),
                       [](const Block& block) { return block.is_active || block.is_condition; });
  }

  void cannot_read(int line, const std::string& why) { script_.unreadable.emplace_back(line, why); }

  void open(std::string_view end, const ShellStatement& statement) {
    if (is_active()) {
      cannot_read(statement.line, "a loop, case or function is not read: " + statement.text);
    }
    blocks_.push_back({end, std::nullopt, false, false, false});
  }

  void take(const ShellStatement& statement) {
    const std::string& first = statement.raw[0];
    if (!blocks_.empty() && first == blocks_.back().end) return blocks_.pop_back();
    if (is_one_of(first, "for|while|until|select")) return open("done", statement);
    if (first == "case") return open("esac", statement);
    if (first == "function" || first.ends_with("()") ||
        (statement.raw.size() > 1 && statement.raw[1] == "()")) {
      return open("}", statement);
    }
    if (first == "if") return begin_if(statement);
    if (first == "then" || first == "else" || first == "elif") return next_branch(statement);
    if (!is_active() || !runs_after(statement)) return;
    status_ = execute(statement);
  }

  // After && and ||.
  bool runs_after(const ShellStatement& statement) {
    if (statement.before != "&&" && statement.before != "||") return true;
    if (!status_) {
      cannot_read(statement.line,
                  "whether this runs is known to the shell alone: " + statement.text);
      return false;
    }
    return *status_ == (statement.before == "&&");
  }

  ShellStatement without_first(const ShellStatement& statement) const {
    ShellStatement rest = statement;
    rest.raw.erase(rest.raw.begin());
    rest.before.clear();
    return rest;
  }

  void begin_if(const ShellStatement& statement) {
    const bool active = is_active();
    blocks_.push_back({"fi", std::nullopt, false, false, active});
    if (active && statement.raw.size() > 1) status_ = execute(without_first(statement));
    condition_line_ = statement.line;
  }

  void next_branch(const ShellStatement& statement) {
    if (blocks_.empty() || blocks_.back().end != "fi") return;
    Block& block = blocks_.back();
    const std::string& word = statement.raw[0];
    if (word == "then") {
      const bool judged = block.is_condition;
      block.is_condition = false;
      block.truth = judged ? status_ : std::optional<bool>(false);
      if (judged && !block.truth) {
        cannot_read(condition_line_,
                    "its condition is known to the shell alone; leave one branch in the script");
      }
      block.is_active = judged && block.truth.value_or(false);
      block.was_taken = block.was_taken || block.is_active || (judged && !block.truth);
    } else if (word == "else") {
      block.is_active = !block.was_taken && block.truth.has_value();
      block.was_taken = true;
    } else {
      block.is_condition = !block.was_taken;
      block.is_active = false;
      condition_line_ = statement.line;
      if (is_active() && statement.raw.size() > 1) status_ = execute(without_first(statement));
      return;
    }
    if (statement.raw.size() > 1) take(without_first(statement));
  }

  // nullopt: how it ends is not known.
  std::optional<bool> execute(const ShellStatement& statement) {
    const std::string& first = statement.raw[0];
    if (is_one_of(first, "[|[[|test")) return judge(statement, 1);
    if (first == "!" && statement.raw.size() > 1) {
      const auto truth = execute(without_first(statement));
      return truth ? std::optional<bool>(!*truth) : truth;
    }
    if (is_one_of(first, "export|declare|local|typeset|readonly")) return assign(statement);
    if (is_assignment(first)) {
      size_t count = 0;
      while (count < statement.raw.size() && is_assignment(statement.raw[count])) ++count;
      const bool has_command = count < statement.raw.size();
      for (size_t i = 0; i < count; ++i) set_variable(statement.raw[i], statement, has_command);
      if (!has_command) return true;
      ShellStatement rest = statement;
      rest.raw.erase(rest.raw.begin(), rest.raw.begin() + static_cast<std::ptrdiff_t>(count));
      return execute(rest);
    }
    // How a program ends is not known; elsewhere it is taken to succeed.
    if (!blocks_.empty() && blocks_.back().is_condition && !is_one_of(first, ":|true")) {
      return std::nullopt;
    }
    ShellCommand command = {statement.line, statement.text, {}};
    for (const std::string& raw : statement.raw) {
      const std::vector<ShellWord> words = expand_word(raw, variables_);
      command.words.insert(command.words.end(), words.begin(), words.end());
    }
    if (statement.before == "|" || command.words.empty()) return true;  // a reader of output
    if (is_one_of(command.words[0].text, ":|true|fi|done|}|esac")) return true;
    drop_redirections(command);
    if (!command.words.empty() && has_room(statement, command.words)) {
      script_.commands.push_back(std::move(command));
    }
    return true;
  }

  // Variables that double at each line make a small script large.
  bool has_room(const ShellStatement& statement, const std::vector<ShellWord>& words) {
    const bool had_room = bytes_ <= kMostBytesInAll;
    for (const ShellWord& word : words) bytes_ += sizeof(word) + word.text.size();
    if (bytes_ <= kMostBytesInAll) return true;
    if (had_room) cannot_read(statement.line, "the script becomes too large from here on");
    return false;
  }

  void add_export(const std::string& name, const ShellWord& value,
                  const ShellStatement& statement) {
    if (has_room(statement, {value})) script_.exports.push_back({name, value, statement.line});
  }

  static void drop_redirections(ShellCommand& command) {
    std::vector<ShellWord> kept;
    for (size_t i = 0; i < command.words.size(); ++i) {
      const std::string& text = command.words[i].text;
      const size_t sign = text.find_first_not_of("0123456789&");
      const bool redirects = sign != std::string::npos && (text[sign] == '>' || text[sign] == '<');
      if (!redirects) {
        kept.push_back(command.words[i]);
      } else if (text.back() == '>' || text.back() == '<') {
        ++i;  // the file is the next word
      }
    }
    command.words = std::move(kept);
  }

  std::optional<bool> assign(const ShellStatement& statement) {
    bool exports = statement.raw[0] == "export";
    for (size_t i = 1; i < statement.raw.size(); ++i) {
      const std::string& raw = statement.raw[i];
      if (raw.starts_with("-")) {
        exports = exports || raw.find('x') != std::string::npos;
      } else if (is_assignment(raw)) {
        set_variable(raw, statement, exports);
      } else if (exports) {
        const auto known = variables_.find(raw);
        if (known != variables_.end() && !known->second.items.empty()) {
          add_export(raw, known->second.items[0], statement);
        }
      }
    }
    return true;
  }

  void set_variable(const std::string& raw, const ShellStatement& statement, bool exports) {
    const size_t equals = raw.find('=');
    const bool appends = raw[equals - 1] == '+';
    const std::string name = raw.substr(0, equals - (appends ? 1 : 0));
    const std::string_view text = std::string_view(raw).substr(equals + 1);
    ShellValue value;
    if (text.starts_with('(') && text.ends_with(')')) {
      value.is_array = true;
      for (const std::string& word : raw_words(text.substr(1, text.size() - 2))) {
        const std::vector<ShellWord> words = expand_word(word, variables_);
        if (value.items.size() + words.size() > kMostItems) {
          return cannot_read(statement.line, "the array becomes too long");
        }
        value.items.insert(value.items.end(), words.begin(), words.end());
      }
    } else {
      value.items.push_back(expand_whole(text, variables_));
    }
    ShellValue& place = variables_[name];
    if (!appends) {
      place = std::move(value);
    } else if (place.is_array || value.is_array) {
      place.is_array = true;
      if (place.items.size() + value.items.size() > kMostItems) {
        return cannot_read(statement.line, "the array becomes too long");
      }
      place.items.insert(place.items.end(), value.items.begin(), value.items.end());
    } else {
      if (place.items.empty()) place.items.emplace_back();
      if (place.items[0].text.size() + value.items[0].text.size() > kMostBytes) {
        return cannot_read(statement.line, "the value becomes too long");
      }
      place.items[0].text += value.items[0].text;
      place.items[0].is_known = place.items[0].is_known && value.items[0].is_known;
    }
    if (exports && !place.is_array && !place.items.empty()) {
      add_export(name, place.items[0], statement);
    }
  }

  std::optional<bool> judge(const ShellStatement& statement, size_t from) {
    std::vector<ShellWord> words;
    for (size_t i = from; i < statement.raw.size(); ++i) {
      if (is_one_of(statement.raw[i], "]|]]")) break;
      const std::vector<ShellWord> expanded = expand_word(statement.raw[i], variables_);
      words.insert(words.end(), expanded.begin(), expanded.end());
    }
    bool negated = false;
    while (!words.empty() && words[0].text == "!") {
      negated = !negated;
      words.erase(words.begin());
    }
    const std::optional<bool> truth = test(words);
    return truth ? std::optional<bool>(*truth != negated) : truth;
  }

  // An operator without its operand tests an empty text, as a variable that is not set is.
  static std::optional<bool> test(const std::vector<ShellWord>& words) {
    const auto known = [&](size_t i) { return i < words.size() && words[i].is_known; };
    if (words.empty()) return false;
    const std::string& first = words[0].text;
    if (is_one_of(first, "-z|-n")) {
      if (words.size() == 1) return first == "-z";
      if (!known(1)) return std::nullopt;
      return words[1].text.empty() == (first == "-z");
    }
    if (is_one_of(first, "-d|-e|-f")) {
      return words.size() > 1 && words[1].text == kHyperpodMark ? std::optional<bool>(false)
                                                                : std::nullopt;
    }
    if (words.size() == 3 && known(0) && known(2)) {
      if (is_one_of(words[1].text, "=|==|-eq")) return first == words[2].text;
      if (is_one_of(words[1].text, "!=|-ne")) return first != words[2].text;
    }
    if (words.size() == 1 && known(0)) return !first.empty();
    return std::nullopt;
  }

  ShellReader reader_;
  ShellVariables variables_;
  std::vector<Block> blocks_;
  std::optional<bool> status_ = true;  // of the last statement
  int condition_line_ = 0;
  size_t bytes_ = 0;
  ShellScript script_;
};

}  // namespace

ShellScript read_shell_script(const std::string& text) { return ScriptReader(text).read(); }

}  // namespace hpctl::migrate
