// SPDX-License-Identifier: Apache-2.0
// A rule of recovery.hang_rules: what the ranks of a command must print, and how often. It finds a
// hang of a program that does not report its steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace hpctl {

enum class HangAction { kWarn, kRestart };
constexpr auto words_of(HangAction) { return std::to_array<const char*>({"warn", "restart"}); }

struct HangRule {
  std::string pattern;    // RE2, looked for in each line that a rank prints
  int64_t within_ms = 0;  // at most so long between two such lines, of whichever ranks
  int64_t first_ms = 0;   // from the start of the ranks to the first one; 0 = auto
  HangAction action = HangAction::kWarn;
};

inline constexpr size_t kMostHangRules = 8;
inline constexpr size_t kMostHangPatternBytes = 500;
inline constexpr int64_t kLeastHangRuleMs = 1'000;  // the holder sees matches to a fifth of that

}  // namespace hpctl
