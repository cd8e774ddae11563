// SPDX-License-Identifier: Apache-2.0
#include "hpctl/second_watcher.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "common/base/bounded_json.h"
#include "common/base/file.h"

namespace hpctl {
namespace {

constexpr const char* kRules = "HYPERPOD_HANG_RULES";
constexpr size_t kMaxRulesBytes = 1U << 20;

bool is_cancel(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word.find("cancel") != std::string::npos;
}

// The names of its fields are not promised, so any value that says cancel counts.
bool says_cancel(const nlohmann::json& rules) {
  if (rules.is_string()) return is_cancel(rules.get<std::string>());
  return std::any_of(rules.begin(), rules.end(), [](const nlohmann::json& part) {
    return (part.is_structured() || part.is_string()) && says_cancel(part);
  });
}

std::string rules_of(const JobSpec& spec) {
  if (const auto set = spec.env.find(kRules); set != spec.env.end()) return set->second;
  const char* given = std::getenv(kRules);
  return given == nullptr ? "" : given;
}

}  // namespace

std::string describe_second_watcher(const JobSpec& spec) {
  const std::string rules = rules_of(spec);
  if (rules.empty()) return "";
  const auto text = read_file(rules, kMaxRulesBytes);
  const auto document = text.ok() ? parse_json_or_discard(*text) : nlohmann::json();
  const auto enabled = document.find("enabled");
  if (enabled != document.end() && enabled->is_boolean() && !enabled->get<bool>()) return "";
  const std::string two = std::string(kRules) + "=" + rules +
                          ": HyperPod watches for hangs beside hpctl (recovery.hang_timeout)";
  if (!document.is_structured() || !says_cancel(document)) {
    return two + "; if its action is to cancel, it ends a job that hpctl would restart";
  }
  return two +
         ", and its rules cancel the job: they would end a job that hpctl restarts; leave "
         "the variable out, or let its rules only warn";
}

}  // namespace hpctl
