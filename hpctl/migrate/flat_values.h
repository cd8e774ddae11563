// SPDX-License-Identifier: Apache-2.0
// TOML, JSON, YAML and command lines as lists of values with dotted keys.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "hpctl/migrate/key_table.h"

namespace hpctl::migrate {

// `file` names the text in errors and sources.
Result<std::vector<Given>> values_of_toml(const std::string& text, const std::string& file);
Result<std::vector<Given>> values_of_json(const std::string& text, const std::string& file);
Result<std::vector<Given>> values_of_yaml(const std::string& text, const std::string& file);

// "--a=1 --b 2 3 --flag" -> --a: 1, --b: [2, 3], --flag: true. Words before the first option are
// left out.
std::vector<Given> values_of_words(const std::vector<std::string>& words, const std::string& file);

// A list as the words of a Given.
void set_items(Given& given, std::vector<std::string> items);

}  // namespace hpctl::migrate
