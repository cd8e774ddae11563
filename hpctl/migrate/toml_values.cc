// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "hpctl/migrate/draft.h"
#include "hpctl/migrate/flat_values.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace hpctl::migrate {
namespace {

std::string scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* whole = node.as_integer()) return std::to_string(whole->get());
  if (const auto* number = node.as_floating_point()) return number_text(number->get());
  return "?";  // a date: no program here has one
}

void flatten_table(const toml::table& table, const std::string& key, const std::string& file,
                   std::vector<Given>& values) {
  for (const auto& [name, node] : table) {
    const std::string path =
        (key.empty() ? "" : key + ".") + std::string(std::string_view(name.str()));
    if (const auto* section = node.as_table()) {
      flatten_table(*section, path, file, values);
      continue;
    }
    Given given;
    given.key = path;
    given.source = file + ":" + std::to_string(node.source().begin.line) + ": " + path;
    std::vector<std::string> items;
    if (const auto* list = node.as_array()) {
      for (const toml::node& member : *list) items.push_back(scalar_text(member));
    } else {
      items.push_back(scalar_text(node));
    }
    set_items(given, std::move(items));
    values.push_back(std::move(given));
  }
}

}  // namespace

Result<std::vector<Given>> values_of_toml(const std::string& text, const std::string& file) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return Error{ErrorCode::kInvalidArgument,
                 file + ":" + std::to_string(error.source().begin.line) +
                     ": not TOML: " + std::string(error.description())};
  }
  std::vector<Given> values;
  flatten_table(parsed.table(), "", file, values);
  return values;
}

}  // namespace hpctl::migrate
