// SPDX-License-Identifier: Apache-2.0
#include "hpctl/job_file.h"

#include <unistd.h>

#include <filesystem>
#include <utility>

#include "common/base/file.h"
#include "hpctl/model_directory.h"

namespace hpctl {
namespace {

constexpr const char* kStandardInput = "standard input";
constexpr size_t kMostInputBytes = 64U << 20;  // what is larger than a job file is refused later

// A name is never a number or a list, whatever it looks like.
std::string as_text(const std::string& value) {
  std::string quoted = "'";
  for (const char c : value) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

Result<std::string> working_directory() {
  std::error_code error;
  const auto directory = std::filesystem::current_path(error);
  if (!error) return directory.string();
  return Error{ErrorCode::kNotFound, "cannot find the working directory: " + error.message()};
}

JobYaml parse_here(const std::string& text, const std::vector<GivenValue>& given) {
  const auto directory = working_directory();
  if (!directory.ok()) return {std::nullopt, {{0, 0, "", directory.error().message}}};
  return parse_job_yaml(text, *directory, given, read_model_directory);
}

JobYaml read_standard_input(const std::vector<GivenValue>& given) {
  const auto text = hpctl::read_all(STDIN_FILENO, kStandardInput, kMostInputBytes);
  if (!text.ok()) return {std::nullopt, {{0, 0, "", text.error().message}}};
  return parse_here(*text, given);
}

// A file of another program, by its name or its first line.
bool is_foreign(const std::string& path) {
  const auto text = hpctl::read_file(path, kMaxJobYamlBytes);
  if (!text.ok() || text->find("workload") != std::string::npos) return false;
  for (const char* ending : {".toml", ".json", ".sh", ".sbatch", ".slurm"}) {
    if (path.ends_with(ending)) return true;
  }
  return text->starts_with("#!");
}

}  // namespace

Result<std::vector<GivenValue>> given_values(const Invocation& invocation) {
  std::vector<GivenValue> given;
  const auto sets = invocation.repeated.find("--set");
  if (sets != invocation.repeated.end()) {
    for (const std::string& word : sets->second) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos || equals == 0) {
        return Error{
            ErrorCode::kInvalidArgument,
            "--set: expected KEY=VALUE, such as workload.train.steps=100, found \"" + word + "\""};
      }
      const std::string key = word.substr(0, equals);
      given.push_back({"--set " + printable(key), key, word.substr(equals + 1)});
    }
  }
  const auto name = invocation.options.find("--name");
  if (name != invocation.options.end()) given.push_back({"--name", "name", as_text(name->second)});
  return given;
}

std::optional<JobSpec> read_job_file(const Terminal& terminal, const std::string& path,
                                     const std::vector<GivenValue>& given) {
  const bool is_input = path == "-";
  JobYaml parsed =
      is_input ? read_standard_input(given) : load_job_yaml(path, given, read_model_directory);
  if (!parsed.spec) {
    if (!is_input && is_foreign(path)) {
      terminal.err << "hpctl: " << printable(path) << " is no job file; `hpctl migrate "
                   << printable(path) << "` makes one of it\n";
      return std::nullopt;
    }
    if (path.ends_with(".py")) {
      const std::string name = printable(path);
      terminal.err << "hpctl: " << name
                   << " is a program and no job file; `hpctl init script` writes a job file that "
                      "starts one: put command: [python3, "
                   << name << "] into it\n";
      return std::nullopt;
    }
    terminal.err << describe_problems(is_input ? kStandardInput : printable(path), parsed.problems);
  }
  return std::move(parsed.spec);
}

std::optional<JobSpec> change_job(const Terminal& terminal, const JobSpec& spec,
                                  const std::string& what, const std::vector<GivenValue>& given) {
  if (given.empty()) return spec;
  JobYaml parsed = parse_here(to_yaml(spec), given);
  if (!parsed.spec) terminal.err << describe_problems(what, parsed.problems);
  return std::move(parsed.spec);
}

std::string first_problem(const JobSpec& spec) {
  const std::vector<SpecProblem> problems = find_problems(spec);
  return problems.empty() ? "" : problems.front().key + ": " + problems.front().message;
}

}  // namespace hpctl
