// SPDX-License-Identifier: Apache-2.0
// Files that people write.
#include <algorithm>

#include "common/rpc/job_yaml.h"
#include "hpctl/chaos_plan.h"
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

void run_chaos_plan(std::string_view input) {
  const auto plan = parse_chaos_plan(input, "plan.yaml");
  if (!plan.ok()) {
    require_readable(plan.error().message, "an error", true);
    require(plan.error().message.find("plan.yaml") != std::string::npos, "which file?");
    return;
  }
  require(plan->faults.size() <= static_cast<size_t>(kMaxPlannedFaults), "too many faults");
  for (const PlannedFault& fault : plan->faults) {
    require(fault.after_ms >= 0, "a fault before the job began");
  }
}

std::vector<std::string> job_yaml_seeds() {
  return {"name: a\nworkload: {command: [python3, t.py]}\nslurm:\n  time: 1-00:00:00\n  mem: 64G\n",
          "name: &n a\nnodes: {count: 2, spares: 1}\nworkload:\n  command: [*n, \"\\u00e9\"]\n"};
}

std::vector<std::string> chaos_plan_seeds() {
  return {
      "seed: 7\nfaults:\n  - {fault: kill-worker, rank: 1, after: 10s}\n"
      "  - {fault: stop-worker, every: 1m, count: 20}\n",
      "trace:\n  period: 54d\n  faster: 1000\n  count: 5\n  causes:\n"
      "    - {cause: faulty GPU, count: 148, faults: [crash-worker]}\n"};
}

}  // namespace

std::vector<Harness> yaml_harnesses() {
  return {{"job_yaml",
           run_job_yaml,
           job_yaml_seeds,
           {"examples/command.yaml", "examples/quickstart.yaml", "examples/slurm.yaml"}},
          {"chaos_plan", run_chaos_plan, chaos_plan_seeds, {"examples/chaos-llama3.yaml"}}};
}

}  // namespace hpctl::fuzz
