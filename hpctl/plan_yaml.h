// SPDX-License-Identifier: Apache-2.0
// The common code for reading the parts of a chaos plan: mappings with known keys, and their
// mistakes.
#pragma once

#include <yaml-cpp/yaml.h>

#include <functional>
#include <string>
#include <vector>

#include "common/jobfile/job_yaml.h"
#include "common/jobfile/yaml_value.h"

namespace hpctl {

class PlanYaml {
 public:
  using ReadValue = std::function<void(YamlValue& value)>;
  struct Key {
    const char* name;
    ReadValue read;
  };

  void add(const YAML::Mark& mark, const std::string& key, const std::string& message);
  // Every key of the mapping is one of `keys`, and there once.
  void read_mapping(const YAML::Node& node, const std::string& path, const std::vector<Key>& keys);
  // Reports a problem of the value being read, unless its type is already wrong.
  void fail_once(YamlValue& value, const std::string& message);
  // A list, each member of which `read` reads.
  static void read_list(YamlValue& value, const std::string& expected,
                        const std::function<void(const YAML::Node&, const std::string&)>& read);

  std::vector<JobYamlProblem>& problems() { return problems_; }

 private:
  const std::string directory_;
  std::vector<JobYamlProblem> problems_;
  size_t problems_before_value_ = 0;
};

}  // namespace hpctl
