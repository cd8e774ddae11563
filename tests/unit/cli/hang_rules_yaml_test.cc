// SPDX-License-Identifier: Apache-2.0
// recovery.hang_rules of job.yaml.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/cli/job_yaml_text.h"

namespace hpctl {
namespace {

const std::string kCommandJob = "name: t\nworkload: {command: [\"true\"]}\n";

TEST(HangRulesYaml, AreThoseOfACommand) {
  const JobSpec spec = test::good(kCommandJob +
                                  "recovery:\n  hang_rules:\n"
                                  "  - {pattern: 'step \\d+', within: 10m, action: restart}\n"
                                  "  - {pattern: \"say \\\"x\\\"\", within: 90s, first: 30m}\n");
  const std::vector<HangRule>& rules = spec.recovery.hang_rules;
  ASSERT_EQ(rules.size(), 2U);
  EXPECT_EQ(rules[0].pattern, "step \\d+");
  EXPECT_EQ(rules[0].within_ms, 600'000);
  EXPECT_EQ(rules[0].first_ms, 0);
  EXPECT_EQ(rules[0].action, HangAction::kRestart);
  EXPECT_EQ(rules[1].pattern, "say \"x\"");
  EXPECT_EQ(rules[1].first_ms, 1'800'000);
  EXPECT_EQ(rules[1].action, HangAction::kWarn) << "unless something else is asked for";
  EXPECT_EQ(to_json_text(test::good(to_yaml(spec))), to_json_text(spec));
}

TEST(HangRulesYaml, MistakesAreNamedWithTheirLine) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"{pattern: 'loss=(', within: 10m}",
       "recovery.hang_rules.pattern: not a regular expression as RE2 takes it: missing )"},
      {"{pattern: x}", "recovery.hang_rules: a rule needs `within`, such as {pattern: "},
      {"{within: 10m}", "recovery.hang_rules: a rule needs `pattern`, such as {pattern: "},
      {"{pattern: x, within: soon}", "recovery.hang_rules.within: "},
      {"{pattern: x, within: 10m, action: kill}",
       "recovery.hang_rules.action: expected one of warn, restart; found \"kill\""},
      {"{pattern: x, within: 10m, frist: 1m}",
       "recovery.hang_rules: unknown key \"frist\"; did you mean \"first\"?"},
      {"{pattern: x, within: 10m, first: 0s}",
       "recovery.hang_rules.first: expected auto or 1s to 30d"},
      {"{pattern: x, within: 10m, within: 10m}",
       "recovery.hang_rules.within: this key is given twice in one rule"},
      {"loss=", "recovery.hang_rules: expected a rule such as {pattern: 'loss=', within: 10m"}};
  for (const auto& [rule, message] : mistakes) {
    const std::string problems =
        test::problems_of(kCommandJob + "recovery:\n  hang_rules:\n  - " + rule + "\n");
    EXPECT_TRUE(problems.starts_with("j.yaml:5:")) << problems;
    EXPECT_NE(problems.find(message), std::string::npos) << problems;
  }
  const std::vector<std::pair<std::string, std::string>> of_all = {
      {"loss=", "expected a list of rules such as [{pattern: "},
      {"[{pattern: '', within: 10m}]",
       "rule 1: expected a pattern of 1 to 500 bytes, found one of 0"},
      {"[{pattern: x, within: 10m}, {pattern: x, within: 10ms}]",
       "rule 2: expected within: 1s to 30d, found 10ms"}};
  for (const auto& [rules, message] : of_all) {
    const std::string problems =
        test::problems_of(kCommandJob + "recovery: {hang_rules: " + rules + "}\n");
    EXPECT_TRUE(problems.starts_with("j.yaml:3:")) << problems;
    EXPECT_NE(problems.find("recovery.hang_rules: " + message), std::string::npos) << problems;
  }
  EXPECT_NE(test::problems_of(test::with_line("recovery: {hang_rules: [{pattern: x, within: 1m}]}"))
                .find("these are for a workload.command"),
            std::string::npos);
}

}  // namespace
}  // namespace hpctl
