// SPDX-License-Identifier: Apache-2.0
#include "common/jobfile/hang_rules_yaml.h"

#include <set>
#include <string>
#include <utility>

#include "common/base/line_pattern.h"
#include "common/jobfile/nearest_word.h"

namespace hpctl {
namespace {

constexpr const char* kExample = "{pattern: 'loss=', within: 10m, action: warn}";

void read_pattern(YamlValue& value, std::string& pattern) {
  value.read(pattern);
  if (pattern.empty()) return;
  const auto compiled = LinePattern::compile(pattern);
  if (compiled.ok()) return;
  value.fail("not a regular expression as RE2 takes it: " + compiled.error().message +
             "; put a \\ before ( [ { * + ? . | ^ $ that stand for themselves; look-around and "
             "back-references are not possible");
}

void read_first(YamlValue& value, int64_t& ms) {
  if (value.is_word("auto")) return;
  int64_t given = -1;
  value.read_duration(given);
  if (given == 0) return value.fail_expected("auto or 1s to 30d");
  if (given > 0) ms = given;
}

void read_action(YamlValue& value, HangAction& action) {
  value.read_word(all_words<HangAction>(), [&](std::string_view word) {
    const auto known = from_word<HangAction>(word);
    if (known) action = *known;
    return known.has_value();
  });
}

void read_unknown(YamlValue& name) {
  const std::vector<std::string> known = {"pattern", "within", "first", "action"};
  const auto nearest =
      name.node().IsScalar() ? nearest_word(name.node().Scalar(), known) : std::nullopt;
  name.fail("unknown key " + describe_node(name.node()) +
            (nearest ? "; did you mean \"" + *nearest + "\"?"
                     : "; expected one of pattern, within, first, action"));
}

HangRule read_rule(YamlValue& item) {
  HangRule rule;
  if (!item.node().IsMap()) {
    item.fail_expected(std::string("a rule such as ") + kExample);
    return rule;
  }
  std::set<std::string> given;
  for (const auto& entry : item.node()) {
    const YAML::Mark mark = entry.first.Mark();
    const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
    YamlValue value = item.at(entry.second, mark, name);
    if (!given.insert(name).second) {
      value.fail("this key is given twice in one rule");
    } else if (name == "pattern") {
      read_pattern(value, rule.pattern);
    } else if (name == "within") {
      value.read_duration(rule.within_ms);
    } else if (name == "first") {
      read_first(value, rule.first_ms);
    } else if (name == "action") {
      read_action(value, rule.action);
    } else {
      YamlValue unknown = item.at(entry.first, mark);
      read_unknown(unknown);
    }
  }
  for (const char* required : {"pattern", "within"}) {
    if (given.contains(required)) continue;
    item.fail("a rule needs `" + std::string(required) + "`, such as " + kExample);
  }
  return rule;
}

}  // namespace

void read_hang_rules(YamlValue& value, std::vector<HangRule>& rules) {
  if (!value.node().IsSequence()) {
    return value.fail_expected(std::string("a list of rules such as [") + kExample + "]");
  }
  rules.clear();
  for (const YAML::Node& node : value.node()) {
    YamlValue item = value.at(node, value.node().Mark());
    rules.push_back(read_rule(item));
  }
}

}  // namespace hpctl
