// SPDX-License-Identifier: Apache-2.0
// LinePattern: a regular expression for lines of a log, in RE2's syntax. The time of a search is
// linear in the line, whatever the pattern, and its memory is bounded: the holder searches output
// that it does not know, in the thread that must show life.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace re2 {
class RE2;
}

namespace hpctl {

class LinePattern {
 public:
  // kInvalidArgument: what is wrong with it, in RE2's words.
  static Result<LinePattern> compile(const std::string& text);

  // Anywhere in the line.
  bool is_in(std::string_view line) const;

 private:
  explicit LinePattern(std::shared_ptr<const re2::RE2> expression);

  std::shared_ptr<const re2::RE2> expression_;
};

}  // namespace hpctl
