// SPDX-License-Identifier: Apache-2.0
// hpctl ps: all jobs of this HPCTL_HOME, or all that one may see of a cluster.
#include "common/base/clock.h"
#include "common/job/paths.h"
#include "hpctl/exit_codes.h"
#include "hpctl/fleet.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace ps_parts {
namespace {

constexpr const char* kHelp = R"(
Lists the jobs of this HPCTL_HOME, oldest first, with ended ones (--state live leaves them out).
With -A it also lists the jobs at the cluster controllers (HPCTL_CLUSTER, or
/etc/hpctl/cluster.conf): every job for root and the cluster controller's user, your own jobs of
all homes for other users. A cluster controller knows the jobs whose controllers run there, from
their start until an hour after their end.

STEP shows the current and the last step; ETA assumes the pace of the newest steps; GOODPUT is the
share of training since the first step (`hpctl goodput`), unknown if a command reports no steps.
REASON says why a job does not run, or what it last recovered from. On a terminal, columns that do
not fit are left out. `-` means unknown.

Examples:
  hpctl ps
  hpctl ps -A --state live --sort goodput
  hpctl ps -A --node 'p5-1?' --user alice
  hpctl ps --json | jq -r '.jobs[] | select(.state == "RUNNING") | .job'

Options:
  -A, --all-users  all jobs that you may see
  --state STATES   only these states, such as running,recovering; live and ended are groups
  --user USER      only jobs of this user, a name or uid
  --node PATTERN   only jobs with a node that matches
  --name PATTERN   only jobs with a name that matches
  --sort KEY       sort by job, name, user, state, nodes, step, rate, eta, restarts, goodput or age;
                   -KEY sorts in descending order
  -w, --wide       all columns at full width, with the names of the nodes
  --json  {"jobs": [{"job", "name", "state", "user", "uid", "nodes": [...], "ranks", "generation",
          "step", "total_steps", "tokens_per_second", "step_ms", "eta_ms", "restarts", "faults",
          "goodput", "lost_ms", "age_ms", "submitted_wall_ms", "ended_wall_ms", "reason",
          "last_fault", "doubt"}]}, null if unknown; with -A also "all_users" and "notes"

Exit codes: 0 shown, 2 wrong arguments, 3 neither a controller nor HPCTL_HOME answers; with -A:
there is no cluster controller, or none answers
)";

void print_table(const Terminal& terminal, const Fleet& fleet, bool wide, WallTime now) {
  Terminal whole = terminal;
  whole.width = wide ? SIZE_MAX : terminal.full_width;
  // A pipe gets all there is; nobody looks at how wide it is.
  std::optional<size_t> width;
  if (!wide) width = terminal.live ? terminal.full_width : SIZE_MAX;
  const JobTable rows = job_rows(fleet.jobs, width, now);
  Table table(rows.header);
  for (size_t j = 0; j < rows.rows.size(); ++j) {
    table.add(rows.rows[j], colour_of_state(fleet.jobs[j].summary.state));
  }
  table.print(whole);
}

// What the words say; kInvalidArgument.
Result<JobFilter> filter_of(const Invocation& invocation) {
  const auto value = [&](const char* name) {
    return invocation.has(name) ? invocation.options.at(name) : std::string();
  };
  JobFilter filter{{}, value("--user"), value("--node"), value("--name")};
  if (invocation.has("--state")) {
    HP_TRY_ASSIGN(filter.states, parse_states(invocation.options.at("--state")));
  }
  return filter;
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto filter = filter_of(invocation);
  if (!filter.ok()) return report_usage(terminal, "ps", filter.error().message);
  const auto order =
      invocation.has("--sort") ? parse_order(invocation.options.at("--sort")) : JobOrder{};
  if (!order.ok()) return report_usage(terminal, "ps", order.error().message);
  const bool everywhere = invocation.has("--all-users");
  auto fleet = everywhere ? list_everywhere() : list_home();
  if (!fleet.ok()) return report(terminal, fleet.error());
  const size_t listed = fleet->jobs.size();
  std::erase_if(fleet->jobs, [&](const ListedJob& job) { return !filter->matches(job); });
  sort_jobs(fleet->jobs, *order);
  const WallTime now = SystemClock().wall();
  if (invocation.json()) {
    terminal.out << fleet_json(*fleet, everywhere, now) << "\n";
    return kExitOk;
  }
  for (const std::string& note : fleet->notes) {
    terminal.err << "hpctl: " << printable(note) << "\n";
  }
  if (!fleet->jobs.empty()) {
    print_table(terminal, *fleet, invocation.has("--wide"), now);
  } else if (listed > 0) {
    terminal.err << "none of " << counted(static_cast<int64_t>(listed), "job") << " is like that\n";
  } else if (everywhere) {
    terminal.err << "no jobs at the cluster controllers\n";
  } else {
    const auto paths = home_from_environment();
    terminal.err << "no jobs in " << (paths.ok() ? paths->home() : "HPCTL_HOME") << " yet\n";
  }
  return kExitOk;
}

}  // namespace
}  // namespace ps_parts

Verb ps_verb() {
  return {"ps",
          "[-A] [filters] [--sort KEY] [--wide]",
          "list jobs",
          ps_parts::kHelp,
          0,
          0,
          {{"--all-users", "-A"},
           {"--state", nullptr, "STATES"},
           {"--user", nullptr, "USER"},
           {"--node", nullptr, "PATTERN"},
           {"--name", nullptr, "PATTERN"},
           {"--sort", nullptr, "KEY"},
           {"--wide", "-w"}},
          ps_parts::run};
}

}  // namespace hpctl
