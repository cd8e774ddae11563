// SPDX-License-Identifier: Apache-2.0
// job.yaml.
#include <algorithm>

#include "common/jobfile/job_yaml.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/properties.h"

namespace hpctl::fuzz {
namespace {

constexpr const char* kDirectory = "/nowhere/of/a/job";

void run_job_yaml(std::string_view input) {
  const JobYaml job = parse_job_yaml(input, kDirectory);
  require(job.spec.has_value() == job.problems.empty(), "neither a job nor a problem, or both");
  const auto lines = std::count(input.begin(), input.end(), '\n') +
                     std::count(input.begin(), input.end(), '\r') + 1;
  for (const JobYamlProblem& problem : job.problems) {
    require(problem.line >= 0 && problem.line <= lines + 1,
            "a problem in line " + std::to_string(problem.line) + " of " + std::to_string(lines));
    require_readable(problem.key, "the key of a problem");
    require_readable(problem.message, "a problem");
    require(!problem.message.empty(), "a problem without words");
  }
  if (!job.spec) return;
  const std::string text = to_yaml(*job.spec);
  const JobYaml again = parse_job_yaml(text, kDirectory);
  require(again.spec.has_value(),
          "its own YAML is not read: " + describe_problems("job", again.problems) + text);
  require(to_json_text(*again.spec) == to_json_text(*job.spec), "written, it is another job");
}

std::vector<std::string> job_yaml_seeds() {
  return {"name: a\nworkload: {command: [python3, t.py]}\nslurm:\n  time: 1-00:00:00\n  mem: 64G\n",
          "name: &n a\nnodes: {count: 2, spares: 1}\nworkload:\n  command: [*n, \"\\u00e9\"]\n"};
}

}  // namespace

std::vector<Harness> yaml_harnesses() {
  return {{"job_yaml",
           run_job_yaml,
           job_yaml_seeds,
           {"examples/command.yaml", "examples/quickstart.yaml", "examples/slurm.yaml"}}};
}

}  // namespace hpctl::fuzz
