// SPDX-License-Identifier: Apache-2.0
#include "common/job/environment_file.h"

#include <algorithm>
#include <utility>

#include "common/base/file.h"
#include "common/base/utf8.h"
#include "common/base/variable_name.h"

namespace hpctl {
namespace {

constexpr const char* kSpaces = " \t\r";

std::string_view without_spaces(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

std::string_view without_quotes(std::string_view value) {
  const bool quoted = value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
                      value.back() == value.front();
  return quoted ? value.substr(1, value.size() - 2) : value;
}

struct Line {
  std::string_view name;
  std::string_view value;
  std::string problem;  // "" = it is a variable
};

Line read_line(std::string_view line) {
  constexpr std::string_view kExport = "export ";
  if (line.starts_with(kExport)) line = without_spaces(line.substr(kExport.size()));
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) return {"", "", "expected NAME=VALUE"};
  const std::string_view name = line.substr(0, equals);
  if (!is_variable_name(name)) {
    return {"", "", "expected the name of an environment variable before ="};
  }
  if (is_reserved_variable(name)) {
    return {"", "", std::string(name) + " is set by hpctl for every worker and cannot be set here"};
  }
  const std::string_view value = without_quotes(without_spaces(line.substr(equals + 1)));
  if (!is_utf8(std::string(value)) || value.find('\0') != std::string_view::npos) {
    return {"", "", "the value of " + std::string(name) + " is not text in UTF-8"};
  }
  return {name, value, ""};
}

Error describe(const Error& error, const std::string& path) {
  if (error.code != ErrorCode::kNotFound) return {error.code, "env.files: " + error.message};
  return {error.code,
          "env.files: " + path + " is missing; put the file there, or remove it from env.files"};
}

}  // namespace

Result<std::map<std::string, std::string>> parse_environment_file(std::string_view text,
                                                                  const std::string& path) {
  std::map<std::string, std::string> variables;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = without_spaces(text.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const Line read = read_line(line);
    if (!read.problem.empty()) {
      return Error{ErrorCode::kInvalidArgument,
                   "env.files: " + path + ":" + std::to_string(number) + ": " + read.problem};
    }
    variables[std::string(read.name)] = std::string(read.value);
  }
  return variables;
}

Result<std::map<std::string, std::string>> read_environment_files(
    const std::vector<std::string>& paths) {
  std::map<std::string, std::string> variables;
  for (const std::string& path : paths) {
    const auto text = read_file(path, kMostEnvironmentFileBytes);
    if (!text.ok()) return describe(text.error(), path);
    HP_TRY_ASSIGN(auto of_file, parse_environment_file(*text, path));
    for (auto& [name, value] : of_file) variables[name] = std::move(value);
  }
  return variables;
}

}  // namespace hpctl
