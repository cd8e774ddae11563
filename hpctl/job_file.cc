// SPDX-License-Identifier: Apache-2.0
#include "hpctl/job_file.h"

#include <utility>

#include "common/rpc/job_yaml.h"

namespace hpctl {

std::optional<JobSpec> read_job_file(const Terminal& terminal, const std::string& path) {
  JobYaml parsed = load_job_yaml(path);
  if (!parsed.spec) terminal.err << describe_problems(printable(path), parsed.problems);
  return std::move(parsed.spec);
}

std::string first_problem(const JobSpec& spec) {
  const std::vector<SpecProblem> problems = find_problems(spec);
  return problems.empty() ? "" : problems.front().key + ": " + problems.front().message;
}

}  // namespace hpctl
