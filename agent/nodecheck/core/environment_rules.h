// SPDX-License-Identifier: Apache-2.0
// The environment variables that a kind of machine needs, as rules from a data file
// (deploy/environment.json describes a rule).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace hpctl::agent {

// "1.9.2-aws" is {1, 9, 2}; nullopt when it does not begin with a number.
using Version = std::vector<int>;
std::optional<Version> parse_version(std::string_view text);

// What is installed; nullopt = could not be found out, which counts as current.
struct InstalledStack {
  std::optional<Version> libfabric;
  std::optional<Version> ofi_nccl;
};

struct VersionBound {
  enum class Kind { kAtLeast, kBelow };
  Kind kind = Kind::kAtLeast;
  Version version;
};

struct EnvironmentRule {
  std::vector<std::string> instances;  // "p5.*"
  std::vector<VersionBound> libfabric;
  std::vector<VersionBound> ofi_nccl;
  std::map<std::string, std::string> set;
};

// kDataLoss names `path` and what is wrong. Keys that a newer version may know are ignored.
Result<std::vector<EnvironmentRule>> parse_environment_rules(std::string_view text,
                                                             const std::string& path);

// No rule applies to a machine whose type is not known ("").
std::map<std::string, std::string> environment_for(const std::vector<EnvironmentRule>& rules,
                                                   const std::string& instance_type,
                                                   const InstalledStack& stack);

// "p5.*" matches "p5.48xlarge"; without a star the whole must be equal.
bool matches_type(std::string_view pattern, std::string_view type);

}  // namespace hpctl::agent
