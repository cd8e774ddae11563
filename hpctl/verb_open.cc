// SPDX-License-Identifier: Apache-2.0
// hpctl open: a link to the status page.
#include <algorithm>
#include <chrono>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/rpc/cluster_client.h"
#include "hpctl/command_line.h"
#include "hpctl/controller_client.h"
#include "hpctl/directory_answer.h"
#include "hpctl/exit_codes.h"
#include "hpctl/fleet.h"
#include "hpctl/open_job.h"
#include "hpctl/submit_directory.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace open_parts {
namespace {

constexpr std::chrono::seconds kClusterTimeout{10};

constexpr const char* kHelp = R"(
Prints a link to the status page of the controller: all of the home's jobs, or of a Slurm job the
one that it has. The link counts once, within ten minutes; the browser that follows it keeps the
session for a day. The page shows what `hpctl ps`, status, why, events and goodput do, as it
changes, and can change nothing. For a local job, or without a JOB, it starts a controller if none
runs.

With -A a link to the page of the cluster controller (HPCTL_CLUSTER, or /etc/hpctl/cluster.conf),
which has all of its jobs that `hpctl ps -A` shows the caller, and their nodes; of several cluster
controllers a link to each, a line each.

The page is served from the first link on, at the loopback address of the controller's machine
unless HPCTL_PAGE (HOST:PORT) was set when it started. From another machine forward the port:
ssh -L PORT:127.0.0.1:PORT MACHINE, and follow the link as it is.

Examples:
  hpctl open
  hpctl open quickstart
  hpctl open quickstart --json | jq -r .url | xargs xdg-open
  hpctl open -A

Options:
  -A, --all-users  the page of all jobs of the cluster
  --json  {"url", "node"}; with -A a line for each cluster controller

Exit codes: 0 printed, 1 no such job, 2 wrong arguments, 3 no controller answers
)";

// Each job of Slurm has a page of its own. The home's has its local jobs, which are none where no
// controller of it has ever run.
Outcome check_has_local_jobs(const HomePaths& paths) {
  if (!directory_answers(paths.jobs())) return Ok{};
  const std::vector<JobId> jobs = slurm_jobs(paths);
  if (jobs.empty() || is_accessible(paths.database())) return Ok{};
  const std::string newest = to_string(*std::max_element(jobs.begin(), jobs.end()));
  return Error{
      ErrorCode::kFailedPrecondition,
      "the jobs of this HPCTL_HOME are Slurm's, and each has a page of its own: `hpctl open " +
          newest + "`; a cluster controller has one of all jobs: `hpctl open -A`"};
}

Result<v1::OpenPageResponse> ask(const Invocation& invocation) {
  if (invocation.arguments.empty()) {
    HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
    HP_TRY(check_has_local_jobs(paths));
    HP_TRY_ASSIGN(const auto client, ControllerClient::ensure(paths));
    return client->open_page("");
  }
  HP_TRY_ASSIGN(const OpenJob job, open_job(invocation));
  if (auto* live = job.source->controller()) return live->open_page(to_string(job.id));
  HP_TRY(check_directory_answers(job.paths.jobs()));
  if (is_slurm_job(job.paths, job.id)) {
    return Error{ErrorCode::kUnavailable,
                 "no controller of job " + to_string(job.id) +
                     " answers; hpctl status and hpctl why show what it left"};
  }
  HP_TRY_ASSIGN(const auto client, ControllerClient::ensure(job.paths));
  return client->open_page(to_string(job.id));
}

void print_link(Invocation& invocation, const std::string& url, const std::string& node) {
  const Terminal& terminal = invocation.terminal;
  if (invocation.json()) {
    terminal.out << json_text(nlohmann::ordered_json{{"url", url}, {"node", node}}) << "\n";
    return;
  }
  terminal.out << url << "\n";
  if (!terminal.live) return;
  terminal.err << "It counts once, within ten minutes.";
  const std::string loopback = "http://127.0.0.1:";
  if (url.starts_with(loopback)) {
    const std::string port =
        url.substr(loopback.size(), url.find('/', loopback.size()) - loopback.size());
    terminal.err << " From another machine first: ssh -L " << port << ":127.0.0.1:" << port << " "
                 << node;
  }
  terminal.err << "\n";
}

// Those that give none are named, and count only where none gives one.
int open_cluster(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto cluster = cluster_to_ask();
  if (!cluster.ok()) return report(terminal, cluster.error());
  std::optional<Error> refusal;
  bool is_printed = false;
  for (const ClusterListing& listing : open_page_at_each(*cluster, kClusterTimeout)) {
    if (listing.jobs.ok()) {
      print_link(invocation, listing.jobs->page_url(), listing.jobs->node());
      is_printed = true;
      continue;
    }
    if (refusal) terminal.err << "hpctl: " << printable(refusal->message) << "\n";
    refusal = listing.jobs.error();
  }
  if (!refusal) return kExitOk;
  if (!is_printed) return report(terminal, *refusal);
  terminal.err << "hpctl: " << printable(refusal->message) << "\n";
  return kExitOk;
}

int run(Invocation& invocation) {
  if (invocation.has("--all-users")) {
    if (invocation.arguments.empty()) return open_cluster(invocation);
    return report_usage(invocation.terminal, "open", "-A is for the page of all jobs; without JOB");
  }
  const auto opened = ask(invocation);
  if (!opened.ok()) return report(invocation.terminal, opened.error());
  print_link(invocation, opened->url(), opened->node());
  return kExitOk;
}

}  // namespace
}  // namespace open_parts

Verb open_verb() {
  return {"open",
          "[JOB | -A]",
          "a link to the status page",
          open_parts::kHelp,
          0,
          1,
          {{"--all-users", "-A"}},
          open_parts::run};
}

}  // namespace hpctl
