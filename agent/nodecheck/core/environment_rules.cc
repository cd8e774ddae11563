// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/core/environment_rules.h"

#include <algorithm>
#include <charconv>

#include "common/base/bounded_json.h"

namespace hpctl::agent {
namespace {

using nlohmann::json;

bool holds(const std::vector<VersionBound>& bounds, const std::optional<Version>& version) {
  return std::all_of(bounds.begin(), bounds.end(), [&](const VersionBound& bound) {
    if (!version) return bound.kind == VersionBound::Kind::kAtLeast;
    const bool below = *version < bound.version;
    return bound.kind == VersionBound::Kind::kBelow ? below : !below;
  });
}

// ">=1.6 <1.7"
std::vector<VersionBound> parse_bounds(const json& rule, const char* key) {
  std::vector<VersionBound> bounds;
  const std::string text = rule.value(key, std::string());
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty()) continue;
    const bool at_least = word.starts_with(">=");
    const auto version = parse_version(std::string_view(word).substr(at_least ? 2 : 1));
    if (!version || (!at_least && word[0] != '<')) {
      throw json::other_error::create(501, "not a range of versions: " + text, nullptr);
    }
    bounds.push_back(
        {at_least ? VersionBound::Kind::kAtLeast : VersionBound::Kind::kBelow, *version});
  }
  return bounds;
}

EnvironmentRule parse_rule(const json& rule) {
  return {rule.at("instances").get<std::vector<std::string>>(), parse_bounds(rule, "libfabric"),
          parse_bounds(rule, "ofi_nccl"), rule.at("set").get<std::map<std::string, std::string>>()};
}

}  // namespace

std::optional<Version> parse_version(std::string_view text) {
  Version version;
  for (const char* at = text.data(); at != text.data() + text.size();) {
    int part = 0;
    const auto [end, error] = std::from_chars(at, text.data() + text.size(), part);
    if (error != std::errc() || part < 0) break;
    version.push_back(part);
    at = end;
    if (at == text.data() + text.size() || *at != '.') break;
    ++at;
  }
  if (version.empty()) return std::nullopt;
  return version;
}

bool matches_type(std::string_view pattern, std::string_view type) {
  if (!pattern.ends_with('*')) return pattern == type;
  return type.starts_with(pattern.substr(0, pattern.size() - 1));
}

Result<std::vector<EnvironmentRule>> parse_environment_rules(std::string_view text,
                                                             const std::string& path) {
  try {
    std::vector<EnvironmentRule> rules;
    const json document = parse_json(text);
    for (const json& rule : document.at("rules")) rules.push_back(parse_rule(rule));
    return rules;
  } catch (const json::exception& e) {
    return Error{ErrorCode::kDataLoss, path + " cannot be used: " + e.what() +
                                           "; no environment variables are taken from it"};
  }
}

std::map<std::string, std::string> environment_for(const std::vector<EnvironmentRule>& rules,
                                                   const std::string& instance_type,
                                                   const InstalledStack& stack) {
  std::map<std::string, std::string> environment;
  if (instance_type.empty()) return environment;
  for (const EnvironmentRule& rule : rules) {
    const bool is_meant = std::any_of(
        rule.instances.begin(), rule.instances.end(),
        [&](const std::string& pattern) { return matches_type(pattern, instance_type); });
    if (!is_meant || !holds(rule.libfabric, stack.libfabric) ||
        !holds(rule.ofi_nccl, stack.ofi_nccl)) {
      continue;
    }
    for (const auto& [name, value] : rule.set) environment[name] = value;
  }
  return environment;
}

}  // namespace hpctl::agent
