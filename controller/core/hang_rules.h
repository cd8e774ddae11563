// SPDX-License-Identifier: Apache-2.0
// A hang of a command that does not report its steps: no rank prints any more what
// recovery.hang_rules expects. Pure; the progress table has the facts. Such a hang is blamed on no
// rank: most programs print on one rank alone, whichever of them hangs.
#pragma once

#include <cstdint>
#include <string>

#include "common/job/hang_rule.h"
#include "common/job/limits.h"

namespace hpctl::core {

// The ranks of the generation that runs, beside one rule.
struct PrintedLines {
  HangRule rule;
  int64_t first_ms = 0;  // first_limit_ms()
  bool any = false;      // a line has matched
  // Since the newest one, or since all ranks run, by the report of the rank that was heard longest
  // ago.
  int64_t silent_ms = 0;
};

// From the start of the ranks to the first line.
int64_t first_limit_ms(const HangRule& rule, const Limits& limits);
bool is_overdue(const PrintedLines& seen);
// For people: what is missing, and since when.
std::string describe_overdue(const PrintedLines& seen);
std::string pattern_text(const HangRule& rule);  // "\"loss=\"", cut

}  // namespace hpctl::core
