// SPDX-License-Identifier: Apache-2.0
#include "hpctl/migrate/flat_values.h"

#include <yaml-cpp/yaml.h>

#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/join.h"
#include "common/base/json_text.h"
#include "hpctl/migrate/draft.h"

namespace hpctl::migrate {
namespace {

using nlohmann::json;

std::string below(const std::string& key, const std::string& name) {
  return key.empty() ? name : key + "." + name;
}

std::string scalar_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return number_text(value.get<double>());
  return json_text(value);
}

void flatten(const json& value, const std::string& key, const std::string& file,
             std::vector<Given>& values) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [name, member] : value.items()) {
      flatten(member, below(key, name), file, values);
    }
    return;
  }
  Given given;
  given.key = key;
  given.source = file + ": " + key;
  std::vector<std::string> items;
  if (value.is_array()) {
    for (const json& member : value) items.push_back(scalar_of(member));
  } else if (!value.is_object()) {
    items.push_back(scalar_of(value));
  }
  set_items(given, std::move(items));
  values.push_back(std::move(given));
}

void flatten(const YAML::Node& node, const std::string& key, const std::string& file,
             std::vector<Given>& values, int depth) {
  constexpr int kDeepestYaml = 32;
  if (node.IsMap() && depth < kDeepestYaml) {
    for (const auto& member : node) {
      flatten(member.second, below(key, member.first.Scalar()), file, values, depth + 1);
    }
    return;
  }
  Given given;
  given.key = key;
  given.source = file + ": " + key;
  std::vector<std::string> items;
  if (node.IsSequence()) {
    for (const auto& member : node) items.push_back(member.IsScalar() ? member.Scalar() : "?");
  } else {
    items.push_back(node.IsNull() ? "null" : node.Scalar());
  }
  set_items(given, std::move(items));
  values.push_back(std::move(given));
}

}  // namespace

void set_items(Given& given, std::vector<std::string> items) {
  // As Python writes them.
  for (std::string& item : items) {
    if (item == "True") item = "true";
    if (item == "False") item = "false";
    if (item == "None") item = "null";
  }
  given.text = join(items, ",");
  given.items = std::move(items);
}

Result<std::vector<Given>> values_of_json(const std::string& text, const std::string& file) {
  json document;
  try {
    document = parse_json(text, {.bytes = 1U << 20, .values = 100'000});
  } catch (const json::exception& e) {
    return Error{ErrorCode::kInvalidArgument, file + ": not JSON: " + e.what()};
  }
  if (!document.is_object()) {
    return Error{ErrorCode::kInvalidArgument, file + ": expected a JSON object"};
  }
  std::vector<Given> values;
  for (const auto& [name, member] : document.items()) flatten(member, name, file, values);
  return values;
}

Result<std::vector<Given>> values_of_yaml(const std::string& text, const std::string& file) {
  std::vector<Given> values;
  try {
    const YAML::Node document = YAML::Load(text);
    if (!document.IsMap()) {
      return Error{ErrorCode::kInvalidArgument, file + ": expected a mapping of keys"};
    }
    flatten(document, "", file, values, 0);
  } catch (const YAML::Exception& e) {
    return Error{ErrorCode::kInvalidArgument, file + ": not YAML: " + e.what()};
  }
  return values;
}

std::vector<Given> values_of_words(const std::vector<std::string>& words, const std::string& file) {
  std::vector<Given> values;
  std::vector<std::string> items;
  const auto finish = [&] {
    if (values.empty()) return items.clear();
    if (items.empty()) items.emplace_back("true");
    set_items(values.back(), std::exchange(items, {}));
  };
  for (const std::string& word : words) {
    if (!word.starts_with("--") || word.size() == 2) {
      items.push_back(word);
      continue;
    }
    finish();
    const size_t equals = word.find('=');
    Given given;
    given.key = word.substr(0, equals);
    given.source = file + ": " + given.key;
    values.push_back(std::move(given));
    if (equals != std::string::npos) items.push_back(word.substr(equals + 1));
  }
  finish();
  return values;
}

}  // namespace hpctl::migrate
