// SPDX-License-Identifier: Apache-2.0
// recovery.hang_rules: when a rule is broken, and what is said then.
#include "controller/core/hang_rules.h"

#include <gtest/gtest.h>

namespace hpctl::core {
namespace {

TEST(HangRules, TheFirstLineHasItsOwnLimit) {
  Limits limits;
  limits.first_step_ms = 600'000;
  EXPECT_EQ(first_limit_ms({"x", 60'000, 0}, limits), 600'000);
  EXPECT_EQ(first_limit_ms({"x", 900'000, 0}, limits), 900'000) << "at least `within`";
  EXPECT_EQ(first_limit_ms({"x", 900'000, 5'000}, limits), 5'000);
}

TEST(HangRules, IsOverdueBeyondItsLimit) {
  PrintedLines lines{{"loss=", 60'000, 0}, 600'000, true, 60'000};
  EXPECT_FALSE(is_overdue(lines));
  lines.silent_ms = 60'001;
  EXPECT_TRUE(is_overdue(lines));
  EXPECT_EQ(describe_overdue(lines),
            "no rank has printed a line that matches \"loss=\" for 60 s (recovery.hang_rules: "
            "within 1m)");
  lines.any = false;
  EXPECT_FALSE(is_overdue(lines));
  lines.silent_ms = 600'001;
  EXPECT_TRUE(is_overdue(lines));
  EXPECT_EQ(describe_overdue(lines),
            "no rank has printed a line that matches \"loss=\" in the 600 s since the ranks "
            "started (recovery.hang_rules: first 10m)");
}

// It stands in lines for people.
TEST(HangRules, ALongPatternIsCut) {
  EXPECT_LT(pattern_text({std::string(kMostHangPatternBytes, 'x'), 1'000}).size(), 100U);
}

}  // namespace
}  // namespace hpctl::core
