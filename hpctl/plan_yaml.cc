// SPDX-License-Identifier: Apache-2.0
#include "hpctl/plan_yaml.h"

#include <algorithm>
#include <set>

#include "common/jobfile/nearest_word.h"

namespace hpctl {
namespace {

std::string hint(const std::string& name, const std::vector<PlanYaml::Key>& keys) {
  std::vector<std::string> names;
  std::string all;
  for (const PlanYaml::Key& key : keys) {
    names.emplace_back(key.name);
    all += (all.empty() ? "" : ", ") + std::string(key.name);
  }
  const auto nearest = nearest_word(name, names);
  return nearest ? "; did you mean \"" + *nearest + "\"?" : "; expected one of " + all;
}

}  // namespace

void PlanYaml::add(const YAML::Mark& mark, const std::string& key, const std::string& message) {
  problems_.push_back({mark.line + 1, mark.column + 1, key, message});
}

void PlanYaml::read_mapping(const YAML::Node& node, const std::string& path,
                            const std::vector<Key>& keys) {
  std::set<std::string> seen;
  for (const auto& pair : node) {
    if (!pair.first.IsScalar()) {
      add(pair.first.Mark(), path, "expected a key, found " + describe_node(pair.first));
      continue;
    }
    const std::string name = pair.first.Scalar();
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == name; });
    if (key == keys.end()) {
      add(pair.first.Mark(), path, "unknown key " + describe_node(pair.first) + hint(name, keys));
    } else if (!seen.insert(name).second) {
      add(pair.first.Mark(), path, "the key \"" + name + "\" is given twice");
    } else {
      const std::string below = path.empty() ? name : path + "." + name;
      YamlValue value(pair.second, pair.first.Mark(), below, directory_, problems_);
      problems_before_value_ = problems_.size();
      key->read(value);
    }
  }
}

void PlanYaml::fail_once(YamlValue& value, const std::string& message) {
  if (problems_.size() == problems_before_value_) value.fail(message);
}

void PlanYaml::read_list(YamlValue& value, const std::string& expected,
                         const std::function<void(const YAML::Node&, const std::string&)>& read) {
  if (!value.node().IsSequence()) return value.fail_expected(expected);
  for (size_t i = 0; i < value.node().size(); ++i) {
    read(value.node()[i], value.path() + "[" + std::to_string(i) + "]");
  }
}

}  // namespace hpctl
