// SPDX-License-Identifier: Apache-2.0
#include "hpctl/migrate/shell_words.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

namespace hpctl::migrate {
namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_char(char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The whole of the word so far is NAME= or NAME+=, so that ( opens an array.
bool opens_array(const std::string& word) {
  if (word.empty() || word.back() != '=') return false;
  std::string_view name(word);
  name.remove_suffix(1);
  if (name.ends_with('+')) name.remove_suffix(1);
  if (name.empty() || !is_name_start(name[0])) return false;
  for (const char c : name) {
    if (!is_name_char(c)) return false;
  }
  return true;
}

// Sums and products of whole numbers and variables, without brackets.
class Calculator {
 public:
  Calculator(std::string_view text, const ShellVariables& variables)
      : text_(text), variables_(variables) {}
  std::optional<int64_t> result() {
    auto sum = product();
    while (sum && (skip(), at_ < text_.size()) && (text_[at_] == '+' || text_[at_] == '-')) {
      const bool adds = text_[at_++] == '+';
      const auto next = product();
      if (!next) return std::nullopt;
      sum = adds ? *sum + *next : *sum - *next;
    }
    skip();
    return at_ == text_.size() ? sum : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  std::optional<int64_t> product() {
    auto value = factor();
    while (value && (skip(), at_ < text_.size()) && (text_[at_] == '*' || text_[at_] == '/')) {
      const bool multiplies = text_[at_++] == '*';
      const auto next = factor();
      if (!next || (!multiplies && *next == 0)) return std::nullopt;
      int64_t product = 0;
      if (!multiplies) {
        product = *value / *next;
      } else if (__builtin_mul_overflow(*value, *next, &product)) {
        return std::nullopt;
      }
      value = product;
    }
    return value;
  }
  std::optional<int64_t> factor() {
    skip();
    if (at_ < text_.size() && text_[at_] == '$') ++at_;
    const bool braced = at_ < text_.size() && text_[at_] == '{';
    at_ += braced ? 1 : 0;
    const size_t begin = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    std::string word(text_.substr(begin, at_ - begin));
    if (braced && (at_ >= text_.size() || text_[at_++] != '}')) return std::nullopt;
    if (!word.empty() && is_name_start(word[0])) {
      const auto known = variables_.find(word);
      if (known == variables_.end() || known->second.items.size() != 1) return std::nullopt;
      if (!known->second.items[0].is_known) return std::nullopt;
      word = known->second.items[0].text;
    }
    int64_t value = 0;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool whole = parsed.ec == std::errc() && parsed.ptr == word.data() + word.size();
    return whole && value >= -(int64_t{1} << 40) && value <= int64_t{1} << 40
               ? std::optional<int64_t>(value)
               : std::nullopt;
  }

  std::string_view text_;
  const ShellVariables& variables_;
  size_t at_ = 0;
};

// A="$A$A" doubles at each line, and ${A:-${A:-…}} recurs: what is beyond these is not known.
constexpr size_t kMostText = 16U << 10;
constexpr size_t kMostWords = 4000;
constexpr int kDeepest = 32;

class Expander {
 public:
  Expander(std::string_view raw, ShellVariables& variables, int depth)
      : raw_(raw), variables_(variables), depth_(depth) {}

  // `splits`: an array, or an unquoted variable with spaces, becomes several words.
  std::vector<ShellWord> expand(bool splits) {
    splits_ = splits;
    while (at_ < raw_.size()) step();
    if (has_word_) add_word(std::move(word_));
    return std::move(words_);
  }

 private:
  void put(std::string_view text) {
    has_word_ = true;
    if (word_.text.size() + text.size() > kMostText) {
      word_.is_known = false;
      return;
    }
    word_.text += text;
  }

  void add_word(ShellWord word) {
    if (words_.size() < kMostWords) words_.push_back(std::move(word));
  }

  void step() {
    const char c = raw_[at_];
    if (c == '\'' && !quoted_) {
      const size_t end = raw_.find('\'', at_ + 1);
      put(raw_.substr(at_ + 1, end == std::string_view::npos ? end : end - at_ - 1));
      at_ = end == std::string_view::npos ? raw_.size() : end + 1;
    } else if (c == '"') {
      quoted_ = !quoted_;
      if (!only_array()) has_word_ = true;
      ++at_;
    } else if (c == '\\' && at_ + 1 < raw_.size()) {
      put(raw_.substr(at_ + 1, 1));
      at_ += 2;
    } else if (c == '`') {
      const size_t end = raw_.find('`', at_ + 1);
      put_unknown(end == std::string_view::npos ? raw_.size() : end + 1);
    } else if (c == '$') {
      expand_dollar();
    } else {
      put(raw_.substr(at_++, 1));
    }
  }

  // "${NAME[@]}" of an empty array is no word at all.
  bool only_array() const {
    return raw_.starts_with("\"${") && (raw_.ends_with("[@]}\"") || raw_.ends_with("[*]}\""));
  }

  void put_unknown(size_t end) {
    put(raw_.substr(at_, end - at_));
    word_.is_known = false;
    at_ = end;
  }

  size_t closing(size_t from, char open, char close) const {
    int depth = 0;
    for (size_t i = from; i < raw_.size(); ++i) {
      if (raw_[i] == open) ++depth;
      if (raw_[i] == close && --depth == 0) return i;
    }
    return raw_.size();
  }

  void expand_dollar() {
    const std::string_view rest = raw_.substr(at_);
    if (rest.starts_with("$((")) {
      const size_t end = closing(at_ + 1, '(', ')');
      const size_t length = end > at_ + 4 ? end - at_ - 4 : 0;
      const auto value = Calculator(raw_.substr(at_ + 3, length), variables_).result();
      if (!value) return put_unknown(std::min(end + 1, raw_.size()));
      put(std::to_string(*value));
      at_ = std::min(end + 1, raw_.size());
    } else if (rest.starts_with("$(")) {
      put_unknown(std::min(closing(at_ + 1, '(', ')') + 1, raw_.size()));
    } else if (rest.starts_with("${")) {
      const size_t end = closing(at_ + 1, '{', '}');
      expand_braces(raw_.substr(at_ + 2, end - at_ - 2), std::min(end + 1, raw_.size()));
    } else {
      size_t end = at_ + 1;
      while (end < raw_.size() && is_name_char(raw_[end])) ++end;
      if (end == at_ + 1 || !is_name_start(raw_[at_ + 1])) {
        return put_unknown(std::min(std::max(end, at_ + 2), raw_.size()));  // $1, $@, $?
      }
      put_variable(std::string(raw_.substr(at_ + 1, end - at_ - 1)), end);
    }
  }

  // NAME, NAME[@], NAME:-VALUE, NAME:=VALUE
  void expand_braces(std::string_view inside, size_t end) {
    size_t length = 0;
    while (length < inside.size() && is_name_char(inside[length])) ++length;
    const std::string name(inside.substr(0, length));
    const std::string_view rest = inside.substr(length);
    if (name.empty()) return put_unknown(end);
    if (rest.empty() || rest == "[@]" || rest == "[*]") return put_variable(name, end);
    const bool with_colon = rest.starts_with(":-") || rest.starts_with(":=");
    if (!with_colon && !rest.starts_with("-") && !rest.starts_with("=")) return put_unknown(end);
    const auto known = variables_.find(name);
    const bool is_set = known != variables_.end() && !known->second.items.empty() &&
                        !(with_colon && known->second.items[0].text.empty());
    if (is_set) return put_variable(name, end);
    if (depth_ >= kDeepest) return put_unknown(end);
    const ShellWord value = expand_inner(rest.substr(with_colon ? 2 : 1));
    if (rest.find('=') == (with_colon ? 1U : 0U)) variables_[name] = {{value}, false};
    put(value.text);
    word_.is_known = word_.is_known && value.is_known;
    at_ = end;
  }

  ShellWord expand_inner(std::string_view raw) {
    const std::vector<ShellWord> words = Expander(raw, variables_, depth_ + 1).expand(false);
    return words.empty() ? ShellWord() : words.front();
  }

  void put_variable(const std::string& name, size_t end) {
    const auto known = variables_.find(name);
    if (known == variables_.end()) return put_missing(name, end);
    const bool whole = word_.text.empty() && end + (quoted_ ? 1 : 0) == raw_.size();
    at_ = end;
    const ShellValue& value = known->second;
    if (splits_ && whole && (value.is_array || !quoted_)) {
      for (const ShellWord& item : value.items) add_words(item);
      return;
    }
    for (size_t i = 0; i < value.items.size(); ++i) {
      put(i == 0 ? value.items[i].text : " " + value.items[i].text);
      word_.is_known = word_.is_known && value.items[i].is_known;
    }
  }

  void add_words(const ShellWord& item) {
    if (quoted_) return add_word(item);
    for (const std::string& part : raw_words(item.text)) {
      ShellVariables none;
      const ShellWord bare = expand_whole(part, none);
      add_word({item.is_known ? bare.text : part, item.is_known});
    }
  }

  // SLURM_JOB_ID and its like are the shell's; an optional variable that nothing sets is empty.
  void put_missing(const std::string& name, size_t end) {
    const bool alone = word_.text.empty() && (only_array() || (!quoted_ && end == raw_.size()));
    if (!splits_ || !alone || name.starts_with("SLURM_")) return put_unknown(end);
    at_ = end;
  }

  std::string_view raw_;
  ShellVariables& variables_;
  int depth_;
  size_t at_ = 0;
  bool splits_ = true;
  bool quoted_ = false;
  bool has_word_ = false;
  ShellWord word_;
  std::vector<ShellWord> words_;
};

}  // namespace

char ShellReader::take() {
  const char c = peek();
  ++at_;
  if (c == '\n') ++line_;
  return c;
}

void ShellReader::skip_comment() {
  const size_t end = std::min(text_.find('\n', at_), text_.size());
  const std::string_view comment = text_.substr(at_, end - at_);
  if (comment.starts_with("#SBATCH ")) directives_.emplace_back(line_, comment.substr(8));
  at_ = end;
}

void ShellReader::skip_here_document(const std::string& end) {
  while (at_ < text_.size()) {
    const size_t newline = std::min(text_.find('\n', at_), text_.size());
    std::string_view line = text_.substr(at_, newline - at_);
    while (!line.empty() && line.front() == '\t') line.remove_prefix(1);
    at_ = std::min(newline + 1, text_.size());
    ++line_;
    if (line == end) return;
  }
}

void ShellReader::read_quoted(char quote, std::string& word) {
  word += take();
  while (at_ < text_.size()) {
    const char c = take();
    word += c;
    if (c == quote) return;
    if (c == '\\' && quote == '"' && at_ < text_.size()) {
      if (peek() == '\n') {
        word.pop_back();
        take();
      } else {
        word += take();
      }
    }
  }
}

void ShellReader::read_nested(char open, char close, std::string& word) {
  int depth = 0;
  while (at_ < text_.size()) {
    const char c = peek();
    if (c == '"' || c == '\'') {
      read_quoted(c, word);
      continue;
    }
    if (c == '#' && open == '(' && !word.empty() && is_space(word.back())) {
      at_ = std::min(text_.find('\n', at_), text_.size());
      continue;
    }
    if (c == '\\' && peek(1) == '\n') {
      take();
      take();
      word += ' ';
      continue;
    }
    word += take();
    if (c == open) ++depth;
    if (c == close && --depth == 0) return;
  }
}

std::string ShellReader::read_word() {
  std::string word;
  while (at_ < text_.size()) {
    const char c = peek();
    if (c == '\\' && peek(1) == '\n') {
      take();
      take();
      if (!word.empty()) return word;
      continue;
    }
    if (is_space(c) || c == ';' || c == '|') return word;
    if (c == '&' && !word.ends_with('>')) return word;
    if (c == '"' || c == '\'') {
      read_quoted(c, word);
    } else if (c == '$' && (peek(1) == '(' || peek(1) == '{')) {
      word += take();
      read_nested(peek(), peek() == '(' ? ')' : '}', word);
    } else if (c == '(' && opens_array(word)) {
      read_nested('(', ')', word);
      return word;
    } else if (c == '\\') {
      word += take();
      if (at_ < text_.size()) word += take();
    } else {
      word += take();
    }
  }
  return word;
}

std::optional<ShellStatement> ShellReader::next() {
  ShellStatement statement;
  statement.before = std::exchange(before_, "");
  size_t begin = at_;
  while (at_ < text_.size()) {
    const char c = peek();
    if (c == '\\' && peek(1) == '\n') {
      take();
      take();
    } else if (c == ' ' || c == '\t' || c == '\r') {
      take();
    } else if (c == '#') {
      skip_comment();
    } else if (c == '\n' || c == ';' || c == '|' || c == '&') {
      const size_t end = at_;
      take();
      if (c != '\n' && peek() == c) take();
      if (c == '\n' && !here_end_.empty()) skip_here_document(std::exchange(here_end_, ""));
      if (c == '|' || c == '&') before_ = std::string(at_ - end, c);
      if (before_ == "&") before_.clear();
      if (!statement.raw.empty()) {
        statement.text = std::string(text_.substr(begin, end - begin));
        return statement;
      }
      begin = at_;
    } else {
      if (statement.raw.empty()) {
        statement.line = line_;
        begin = at_;
      }
      std::string word = read_word();
      if (word.empty()) continue;
      if (word.starts_with("<<") && !word.starts_with("<<<")) {
        const size_t name = word.find_first_not_of("<-'\"");
        if (name != std::string::npos) {
          here_end_ = word.substr(name, word.find_last_not_of("'\"") + 1 - name);
        }
      }
      statement.raw.push_back(std::move(word));
    }
  }
  if (statement.raw.empty()) return std::nullopt;
  statement.text = std::string(text_.substr(begin));
  return statement;
}

std::vector<ShellWord> expand_word(std::string_view raw, ShellVariables& variables) {
  return Expander(raw, variables, 0).expand(true);
}

ShellWord expand_whole(std::string_view raw, ShellVariables& variables) {
  const std::vector<ShellWord> words = Expander(raw, variables, 0).expand(false);
  return words.empty() ? ShellWord() : words.front();
}

std::string shell_quoted(const ShellWord& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%";
  const std::string& text = word.text;
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted(1, word.is_known ? '\'' : '"');
  for (const char c : text) {
    if (!word.is_known && c == '"') quoted += '\\';
    quoted += word.is_known && c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + (word.is_known ? '\'' : '"');
}

std::vector<std::string> raw_words(std::string_view text) {
  std::vector<std::string> words;
  ShellReader reader(text);
  while (auto statement = reader.next()) {
    words.insert(words.end(), statement->raw.begin(), statement->raw.end());
  }
  return words;
}

}  // namespace hpctl::migrate
