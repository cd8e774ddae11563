// SPDX-License-Identifier: Apache-2.0
#include "controller/core/hang_rules.h"

#include <algorithm>

#include "common/base/printable.h"
#include "common/base/quantity.h"

namespace hpctl::core {

int64_t first_limit_ms(const HangRule& rule, const Limits& limits) {
  return rule.first_ms > 0 ? rule.first_ms : std::max(rule.within_ms, limits.first_step_ms);
}

bool is_overdue(const PrintedLines& seen) {
  return seen.silent_ms > (seen.any ? seen.rule.within_ms : seen.first_ms);
}

std::string describe_overdue(const PrintedLines& seen) {
  const std::string seconds = std::to_string(seen.silent_ms / 1000) + " s";
  const std::string what = "no rank has printed a line that matches " + pattern_text(seen.rule);
  return seen.any ? what + " for " + seconds + " (recovery.hang_rules: within " +
                        format_duration_ms(seen.rule.within_ms) + ")"
                  : what + " in the " + seconds +
                        " since the ranks started (recovery.hang_rules: first " +
                        format_duration_ms(seen.first_ms) + ")";
}

std::string pattern_text(const HangRule& rule) {
  constexpr size_t kShown = 80;
  return "\"" + printable_line(rule.pattern, kShown) + "\"";
}

}  // namespace hpctl::core
