// SPDX-License-Identifier: Apache-2.0
// hpctl nodes: the nodes of one job or of all jobs that have not ended.
#include <nlohmann/json.hpp>

#include "hpctl/exit_codes.h"
#include "hpctl/job_source.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace {

constexpr const char* kHelp = R"(
Lists nodes with their role (active, spare, lost, quarantined) and state (launching, up, down,
ended). Without JOB: the nodes of all jobs that have not ended. On the local backend a node is a
virtual one, n0, n1, ...: a holder process and its agent on this machine.

Examples:
  hpctl nodes
  hpctl nodes quickstart --json

Options:
  --json  {"nodes": [{"job", "name", "role", "state", "instance_id", "boot_id", "holder_pid",
          "agent_pid"}]}

Exit codes: 0 shown, 1 no such job
)";

// The jobs whose nodes are asked for.
Result<std::vector<JobId>> wanted_jobs(JobSource& source, const Invocation& invocation) {
  std::vector<JobId> jobs;
  if (!invocation.arguments.empty()) {
    HP_TRY_ASSIGN(const JobId job, find_job(source, invocation.arguments[0]));
    jobs.push_back(job);
    return jobs;
  }
  HP_TRY_ASSIGN(const std::vector<JobLine> all, source.list_jobs());
  for (const JobLine& job : all) {
    if (!has_ended(job.state)) jobs.push_back(job.job);
  }
  return jobs;
}

void print_json(const Terminal& terminal, const std::vector<JobView>& jobs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const JobView& job : jobs) {
    for (const NodeView& n : job.nodes) {
      list.push_back({{"job", job.job},
                      {"name", n.name},
                      {"role", n.role},
                      {"state", n.state},
                      {"instance_id", n.instance_id},
                      {"boot_id", n.boot_id},
                      {"holder_pid", n.holder_pid},
                      {"agent_pid", n.agent_pid}});
    }
  }
  terminal.out << nlohmann::ordered_json{{"nodes", list}}.dump() << "\n";
}

void print_table(const Terminal& terminal, const std::vector<JobView>& jobs) {
  Table table({"JOB", "NODE", "ROLE", "STATE", "HOLDER", "AGENT", "INSTANCE"});
  size_t rows = 0;
  for (const JobView& job : jobs) {
    for (const NodeView& n : job.nodes) {
      table.add({std::to_string(job.job), n.name, n.role, n.state, std::to_string(n.holder_pid),
                 std::to_string(n.agent_pid), n.instance_id},
                colour_of_state(n.state));
      ++rows;
    }
  }
  if (rows > 0) {
    table.print(terminal);
  } else {
    terminal.err << "no nodes in use\n";
  }
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto paths = home_from_environment();
  if (!paths.ok()) return report(terminal, paths.error());
  const auto source = open_source(*paths);
  const auto ids = wanted_jobs(*source, invocation);
  if (!ids.ok()) return report(terminal, ids.error());
  std::vector<JobView> jobs;
  for (const JobId id : *ids) {
    auto job = source->get_job(id);
    if (!job.ok()) return report(terminal, job.error());
    jobs.push_back(std::move(*job));
  }
  if (invocation.json()) {
    print_json(terminal, jobs);
  } else {
    print_table(terminal, jobs);
  }
  return kExitOk;
}

}  // namespace

Verb nodes_verb() { return {"nodes", "[JOB]", "list nodes", kHelp, 0, 1, {}, run}; }

}  // namespace hpctl
