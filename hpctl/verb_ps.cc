// SPDX-License-Identifier: Apache-2.0
// hpctl ps: all jobs of this HPCTL_HOME.
#include <nlohmann/json.hpp>

#include "hpctl/exit_codes.h"
#include "hpctl/job_source.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace ps_parts {
namespace {

constexpr const char* kHelp = R"(
Lists the jobs of this HPCTL_HOME, oldest first, ended ones included.

Examples:
  hpctl ps
  hpctl ps --json | jq -r '.jobs[] | select(.state == "RUNNING") | .job'

Options:
  --json  {"jobs": [{"job", "name", "state"}]}

Exit codes: 0 shown
)";

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto paths = home_from_environment();
  if (!paths.ok()) return report(terminal, paths.error());
  const auto jobs = open_source(*paths)->list_jobs();
  if (!jobs.ok()) return report(terminal, jobs.error());
  if (invocation.json()) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const JobLine& job : *jobs) {
      list.push_back({{"job", job.job.value}, {"name", job.name}, {"state", job.state}});
    }
    terminal.out << nlohmann::ordered_json{{"jobs", list}}.dump() << "\n";
    return kExitOk;
  }
  if (jobs->empty()) {
    terminal.err << "no jobs in " << paths->home() << " yet\n";
    return kExitOk;
  }
  Table table({"JOB", "NAME", "STATE"});
  for (const JobLine& job : *jobs) {
    table.add({to_string(job.job), job.name, job.state}, colour_of_state(job.state));
  }
  table.print(terminal);
  return kExitOk;
}

}  // namespace
}  // namespace ps_parts

Verb ps_verb() { return {"ps", "", "list jobs", ps_parts::kHelp, 0, 0, {}, ps_parts::run}; }

}  // namespace hpctl
