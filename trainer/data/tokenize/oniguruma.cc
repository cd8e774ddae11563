// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/oniguruma.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "common/base/printable.h"

namespace hpctl {
namespace {

// Unicode's White_Space. PCRE2's own \s also has U+180E.
constexpr std::string_view kSpaces =
    R"(\t-\r\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kHexDigits = "0-9a-fA-F";
// PCRE2's own \w has numbers of all kinds, and no marks. Oniguruma has a table of its own for the
// characters of Latin-1, in which powers and fractions are of words.
constexpr std::string_view kOfWords =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr size_t kShownOfPattern = 300;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Goes through the pattern once. What it has no rule for stands alike in both.
class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> run() {
    while (at_ < in_.size()) HP_TRY(one());
    HP_TRY(check_caseless());
    return out_;
  }

 private:
  bool has(std::string_view next) const { return in_.substr(at_).starts_with(next); }
  void copy(size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }
  // Puts `out` in the place of the next `count` characters.
  void replace(size_t count, std::string_view out) {
    out_ += out;
    at_ += count;
  }
  Error refused(const std::string& what) const {
    return Error{ErrorCode::kInvalidArgument,
                 "the pattern \"" + printable_line(in_, kShownOfPattern) + "\" has " + what +
                     ", which Oniguruma reads in its own way and hpctl cannot"};
  }

  Outcome one() {
    switch (in_[at_]) {
      case '\\':
        return escape(false);
      case '[':
        return character_class();
      case '(':
        return group();
      case '{':
        return interval();
      case '^':
        replace(1, "(?m:^)");
        return Ok{};
      case '$':
        replace(1, "(?m:$)");
        return Ok{};
      default:
        copy(1);
        return Ok{};
    }
  }

  // Outside of a class, a set is one of its own.
  void put_set(std::string_view set, bool in_class) {
    replace(2, in_class ? std::string(set) : "[" + std::string(set) + "]");
  }

  Outcome escape(bool in_class) {
    if (at_ + 1 == in_.size()) return refused("a backslash at its end");
    const char c = in_[at_ + 1];
    switch (c) {
      case 's':
        put_set(kSpaces, in_class);
        return Ok{};
      case 'h':
        put_set(kHexDigits, in_class);
        return Ok{};
      case 'w':
        put_set(kOfWords, in_class);
        return Ok{};
      case 'v':
        replace(2, R"(\x0b)");
        return Ok{};
      case 'S':
      case 'H':
      case 'W':
        if (in_class) return refused(std::string("\\") + c + " in a class");
        replace(2, "[^" + std::string(c == 'S' ? kSpaces : c == 'H' ? kHexDigits : kOfWords) + "]");
        return Ok{};
      case 'p':
      case 'P':
        return property();
      case 'x':
      case 'u':
        return code_point();
      case 'b':
        if (in_class) break;  // a backspace
        [[fallthrough]];
      case 'B':
      case 'V':
      case 'Q':
      case 'E':
      case 'g':
        return refused(std::string("\\") + c);
      default:
        break;
    }
    copy(2);
    return Ok{};
  }

  // A script's name alone is Script_Extensions for PCRE2.
  Outcome property() {
    const size_t end = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || end == std::string_view::npos) {
      return refused("a property without braces");
    }
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    const bool is_negated = name.starts_with('^');
    if (is_negated) name.remove_prefix(1);
    constexpr size_t kMostOfCategory = 2;
    const bool is_script = name.size() > kMostOfCategory && name != "Alphabetic" && name != "Any";
    out_ += std::string("\\") + in_[at_ + 1] + "{" + (is_negated ? "^" : "") +
            (is_script ? "sc:" : "") + std::string(name) + "}";
    at_ = end + 1;
    return Ok{};
  }

  // \x41, \x{1f600} and \u0041. \xC3 is a byte.
  Outcome code_point() {
    const auto hex_digits = [&](size_t from) {
      size_t count = 0;
      while (from + count < in_.size() &&
             std::isxdigit(static_cast<unsigned char>(in_[from + count])) != 0) {
        ++count;
      }
      return count;
    };
    if (in_[at_ + 1] == 'u') {
      constexpr size_t kDigits = 4;
      if (hex_digits(at_ + 2) < kDigits) return refused("\\u without four digits");
      out_ += "\\x{" + std::string(in_.substr(at_ + 2, kDigits)) + "}";
      at_ += 2 + kDigits;
      return Ok{};
    }
    if (at_ + 2 < in_.size() && in_[at_ + 2] == '{') {
      const size_t digits = hex_digits(at_ + 3);
      if (digits == 0 || at_ + 3 + digits == in_.size() || in_[at_ + 3 + digits] != '}') {
        return refused("\\x{} with more than a number");
      }
      copy(digits + 4);
      return Ok{};
    }
    if (hex_digits(at_ + 2) < 2 || in_[at_ + 2] > '7') return refused("\\x of a byte");
    copy(4);
    return Ok{};
  }

  // [a[bc]] is [abc], and [a&&[^b]] is one of a that is none of b.
  Outcome character_class() {
    const size_t begin = out_.size();
    bool is_negated = false;
    copy(1);
    if (has("^")) {
      is_negated = true;
      copy(1);
    }
    if (has("]")) replace(1, "\\]");
    bool is_nested = false;
    for (;;) {
      if (at_ >= in_.size()) return refused("a class without an end");
      if (has("&&[^") && !is_nested && !is_negated) return without(begin);
      if (has("&&")) return refused("&& in a class");
      if (has("\\")) {
        HP_TRY(escape(true));
      } else if (has("[")) {
        if (is_nested || has("[^") || has("[:") || out_.ends_with('-')) {
          return refused("a class in a class");
        }
        is_nested = true;
        ++at_;
      } else if (has("]") && is_nested) {
        is_nested = false;
        ++at_;
        if (has("-")) return refused("a class in a class");
      } else if (has("]")) {
        copy(1);
        return Ok{};
      } else {
        copy(1);
      }
    }
  }

  // At "&&[^" of the class that begins there in out_, which has no other part.
  Outcome without(size_t begin) {
    const std::string kept = out_.substr(begin) + "]";
    out_.resize(begin);
    at_ += std::string_view("&&[^").size();
    out_ += "(?:(?![";
    while (!has("]")) {
      if (at_ >= in_.size() || has("[") || has("&&")) return refused("&& in a class");
      if (has("\\")) {
        HP_TRY(escape(true));
      } else {
        copy(1);
      }
    }
    at_ += 1;
    if (!has("]")) return refused("&& in a class");
    at_ += 1;
    out_ += "])" + kept + ")";
    return Ok{};
  }

  Outcome group() {
    if (has("(*")) return refused("(*");
    if (!has("(?")) {
      copy(1);
      return Ok{};
    }
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (!has(known)) continue;
      copy(known.size());
      return Ok{};
    }
    return options();
  }

  // (?imx-imx: and, at the very beginning, (?imx). m is PCRE2's s.
  Outcome options() {
    const size_t end = in_.find_first_not_of("imx-", at_ + 2);
    if (end == std::string_view::npos || end == at_ + 2 || (in_[end] != ':' && in_[end] != ')')) {
      return refused("\"" + std::string(in_.substr(at_, 4)) + "\"");
    }
    // Elsewhere the rest of the group, with its alternatives, would be a group of its own.
    if (in_[end] == ')' && at_ != 0) return refused("options behind its beginning");
    std::string letters(in_.substr(at_, end + 1 - at_));
    std::replace(letters.begin(), letters.end(), 'm', 's');
    const std::string on = letters.substr(0, letters.find('-'));
    is_caseless_ = is_caseless_ || on.find('i') != std::string::npos;
    out_ += letters;
    at_ = end + 1;
    return Ok{};
  }

  // {n}, {n,}, {n,m} and {,m}.
  Outcome interval() {
    size_t end = at_ + 1;
    const auto pass_digits = [&] {
      const size_t from = end;
      while (end < in_.size() && is_digit(in_[end])) ++end;
      return end > from;
    };
    const bool has_low = pass_digits();
    const bool has_comma = end < in_.size() && in_[end] == ',';
    if (has_comma) ++end;
    const bool has_high = has_comma && pass_digits();
    if ((!has_low && !has_high) || end >= in_.size() || in_[end] != '}') {
      copy(1);  // a brace
      return Ok{};
    }
    const char next = end + 1 < in_.size() ? in_[end + 1] : ' ';
    if (next == '+' || (next == '?' && !has_comma)) return refused("a quantifier of a quantifier");
    if (!has_low) replace(1, "{0");
    copy(end + 1 - at_);
    return Ok{};
  }

  // Oniguruma takes ß for ss, and the ligatures ﬁ and ﬆ for their letters.
  Outcome check_caseless() const {
    if (!is_caseless_) return Ok{};
    std::string small(in_);
    for (char& c : small) {
      if (static_cast<unsigned char>(c) >= 0x80) return refused("letters beyond ASCII and (?i");
      c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    for (const char* pair : {"ss", "st", "ff", "fi", "fl"}) {
      if (small.find(pair) != std::string::npos) {
        return refused("(?i and \"" + std::string(pair) + "\"");
      }
    }
    return Ok{};
  }

  const std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  bool is_caseless_ = false;
};

}  // namespace

Result<std::string> oniguruma_as_pcre2(const std::string& pattern) {
  return Translator(pattern).run();
}

}  // namespace hpctl
