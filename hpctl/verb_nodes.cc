// SPDX-License-Identifier: Apache-2.0
// hpctl nodes: the nodes of one job or of all jobs that have not ended; and what may be done with
// them.
#include <algorithm>
#include <cstdint>
#include <set>

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/quantity.h"
#include "hpctl/controller_client.h"
#include "hpctl/directory_answer.h"
#include "hpctl/exit_codes.h"
#include "hpctl/fleet_lemons.h"
#include "hpctl/job_source.h"
#include "hpctl/lemons.h"
#include "hpctl/node_check.h"
#include "hpctl/node_table.h"
#include "hpctl/open_job.h"
#include "hpctl/queued_release.h"
#include "hpctl/submit_directory.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace nodes_parts {
namespace {

constexpr const char* kCheck = "check";
constexpr const char* kLemons = "lemons";

constexpr const char* kHelp = R"(
Lists nodes with their role (active, spare, lost, quarantined) and state (launching, up, stopping,
down, ended). Without JOB it lists the nodes of all jobs that have not ended. A local node is
virtual, n0, n1, ...: a holder process and its agent on this machine. STANDBYS shows ready and
desired standby processes (recovery.standbys, recovery.standby_imports), and their memory. NOTE says
why the scheduler drains or cannot use a node, or why a node is quarantined.

quarantine takes all ranks from a node. The workers save the step under way, and a spare takes the
ranks in a new generation, or recovery.on_node_loss decides. Without --job it applies to every live
job with that node. The quarantine belongs to the instance and outlives the controller. It ends by
release, by --for, or when another instance takes the node's place.

If Slurm drains a node, the built-in trainer leaves it in the same way if there is a spare that
Slurm does not drain. Otherwise its ranks stay, and the job is not requeued.

reboot and replace quarantine a node. Once its work has left, they mark it for HyperPod with
state=fail and reason Action:Reboot (the same machine, minutes; its instance store is lost) or
Action:Replace (another machine, half an hour). The quarantine ends when the node is back. If the
job's user is no Slurm operator, hpctl why JOB prints the command for one. A verdict on the hardware
does the same: first a reboot, if the check says that it may help.

LEMON scores a machine by the evidence against it in jobs of this HPCTL_HOME: 4 for a verdict on its
hardware, 2 if it stopped answering, 2 for hangs and 1 for slowness that ended when the job left it.
Faults of the program, of a hook or of the storage count nothing, and neither does a node that the
scheduler or an administrator took. Without a verdict a job counts 2 at most. The score halves every
week. A machine with 3 or more is a lemon: jobs under Slurm use it last, as a spare if they have
one. `lemons` lists them with the gravest record. `check` makes a deep check (hpagent check all
--deep, half a minute of full load) by srun, or here without Slurm. If it passes, earlier records
count no more; if it fails, that counts 4. With --job it runs within that Slurm job, beside its
workers.

With -A and a cluster controller, `lemons` counts the jobs of all users, for every job whose
controller runs there. One user counts 2 at most against a machine, and less the more machines the
user reports, so one user cannot mark a machine alone. For operators, `check` reports its result to
the cluster controller. If it passes, no earlier record counts any more; if it fails, that counts 4.

Examples:
  hpctl nodes
  hpctl nodes quickstart --json
  hpctl nodes quarantine p5-17 --reason "link flaps" --for 12h
  hpctl nodes release p5-17
  hpctl nodes reboot p5-17 --reason "the driver hangs"
  hpctl nodes lemons
  hpctl nodes lemons -A
  hpctl nodes check p5-17

Options:
  -A, --all-users  lemons: count the jobs of all users; check: report for all users
  --job JOB      only this job; an operator of the cluster controller gives the id of any job
  --reason TEXT  why, for the history
  --for TIME     quarantine: such as 30m or 2d; without it until released
  --yes          quarantine, reboot, replace: also where the job is requeued for it
  --json  {"nodes": [{"job", "name", "role", "state", "instance_id", "boot_id", "holder_pid",
          "agent_pid", "note", "standbys": {"wanted", "ready", "loading", "memory_bytes"},
          "lemon": {"score", "lemon", "records", "reason"}}]};
          "standbys" is missing if there are none and none are desired, or the agent does not
          report them; "lemon" is missing without records. lemons: {"nodes": [{"name",
          "instance_id", "score", "lemon", "records", "reason"}]}, with -A also "users" (how many
          have records) and "checked" (an operator's check failed). check: as hpagent check --json

Exit codes: 0 shown or done, 1 no such job or node, or refused, 3 no controller answers, or the
file system of HPCTL_HOME does not
)";

// The jobs whose nodes are asked for.
Result<std::vector<JobId>> wanted_jobs(JobSource& source, const Invocation& invocation) {
  std::vector<JobId> jobs;
  if (!invocation.arguments.empty()) {
    HP_TRY_ASSIGN(const FoundJob job, find_job(source, invocation.arguments[0]));
    jobs.push_back(job.id);
    return jobs;
  }
  HP_TRY_ASSIGN(const std::vector<JobSummary> all, source.list_jobs());
  for (const JobSummary& job : all) {
    if (!has_ended(job.state)) jobs.push_back(job.job);
  }
  return jobs;
}

void print_json(const Terminal& terminal, const std::vector<JobView>& jobs,
                const std::vector<LemonScore>& lemons) {
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
                      {"agent_pid", n.agent_pid},
                      {"note", n.note}});
      const LemonScore* lemon = find_lemon_score(lemons, n.name, n.instance_id);
      if (lemon != nullptr) list.back()["lemon"] = lemon_json(*lemon);
      if (!n.standbys) continue;
      list.back()["standbys"] = {{"wanted", n.standbys->wanted},
                                 {"ready", n.standbys->ready},
                                 {"loading", n.standbys->loading},
                                 {"memory_bytes", n.standbys->memory_bytes}};
    }
  }
  terminal.out << json_text(nlohmann::ordered_json{{"nodes", list}}) << "\n";
}

void print_table(const Terminal& terminal, const std::vector<JobView>& jobs,
                 const std::vector<LemonScore>& lemons) {
  const bool any =
      std::any_of(jobs.begin(), jobs.end(), [](const JobView& job) { return !job.nodes.empty(); });
  if (any) {
    make_node_table(jobs, lemons, true, SIZE_MAX).print(terminal);
  } else {
    terminal.err << "no nodes in use\n";
  }
}

Result<std::unique_ptr<ControllerClient>> controller_of(const HomePaths& paths, JobId job) {
  if (!directory_answers(paths.jobs()) || !is_slurm_job(paths, job)) {
    return ControllerClient::ensure(paths);
  }
  auto client = ControllerClient::connect(paths, job);
  if (client.ok()) return client;
  return Error{ErrorCode::kUnavailable,
               client.error().message + "; see hpctl status " + to_string(job)};
}

// The live jobs that have the node, or the one that was named.
Result<std::vector<JobId>> jobs_with(const HomePaths& paths, const Invocation& invocation,
                                     const std::string& node) {
  const auto source = open_source(paths);
  std::vector<JobId> jobs;
  if (invocation.has("--job")) {
    HP_TRY_ASSIGN(const FoundJob job, find_job(*source, invocation.options.at("--job")));
    jobs.push_back(job.id);
    return jobs;
  }
  HP_TRY_ASSIGN(const std::vector<JobSummary> all, source->list_jobs());
  for (const JobSummary& line : all) {
    if (has_ended(line.state)) continue;
    const auto view = source->get_job(line.job);
    if (!view.ok()) continue;
    const auto is_it = [&](const NodeView& n) { return n.name == node; };
    if (std::any_of(view->nodes.begin(), view->nodes.end(), is_it)) jobs.push_back(line.job);
  }
  if (!jobs.empty()) return jobs;
  return Error{ErrorCode::kNotFound, "no live job has a node " + node + "; see hpctl nodes"};
}

// What follows "NODE of job JOB"; "" = there is no such order.
std::string answer_to(const std::string& word) {
  if (word == "quarantine") return "is quarantined";
  if (word == "release") return "is released";
  if (word == "reboot") return "is to be rebooted once its work has left";
  return word == "replace" ? "is to be replaced once its work has left" : "";
}

// The job says what it does about it: its ranks may move, or the job may be requeued.
std::string what_follows(ControllerClient& client, JobId job, const std::string& node) {
  const auto view = client.get_job(job);
  if (!view.ok() || !view->reason.starts_with(node + " ")) return "";
  return "\n  " + view->state + ": " + printable(view->reason);
}

Outcome order_at(ControllerClient& client, JobId job, const Invocation& invocation,
                 int64_t for_ms) {
  const std::string& word = invocation.arguments[0];
  const std::string& node = invocation.arguments[1];
  const std::string reason = invocation.has("--reason") ? invocation.options.at("--reason") : "";
  const bool asks_first = !invocation.has("--yes");
  if (word == "quarantine") {
    HP_TRY(client.quarantine_node(job, node, reason, for_ms, asks_first));
  } else if (word == "release") {
    HP_TRY(client.release_node(job, node));
  } else {
    HP_TRY(client.recover_node(job, node, reason, word == "reboot", asks_first));
  }
  invocation.terminal.out << node << " of job " << to_string(job) << " " << answer_to(word)
                          << what_follows(client, job, node) << "\n";
  return Ok{};
}

// Jobs in Slurm's queue, which have no controller. How many of them had the node released.
Result<size_t> release_in_queues(const HomePaths& paths, const Invocation& invocation) {
  if (!directory_answers(paths.jobs())) return size_t{0};
  const auto source = open_source(paths);
  std::vector<JobId> jobs;
  if (invocation.has("--job")) {
    const auto job = find_job(*source, invocation.options.at("--job"));
    if (!job.ok()) return size_t{0};  // it may be elsewhere
    jobs.push_back(job->id);
  } else {
    HP_TRY_ASSIGN(const std::vector<JobSummary> all, source->list_jobs());
    for (const JobSummary& line : all) {
      if (line.state == "PENDING") jobs.push_back(line.job);
    }
  }
  size_t released = 0;
  for (const JobId job : jobs) {
    if (!is_slurm_job(paths, job) || !lost_job_directory(paths, job).empty()) continue;
    HP_TRY_ASSIGN(const auto told, release_in_queue(paths, job, invocation.arguments[1]));
    if (!told) continue;
    invocation.terminal.out << printable(*told) << "\n";
    ++released;
  }
  return released;
}

Outcome order(const HomePaths& paths, const Invocation& invocation, int64_t for_ms) {
  if (invocation.arguments[0] == "release") {
    HP_TRY_ASSIGN(const size_t released, release_in_queues(paths, invocation));
    if (released > 0) return Ok{};
  }
  const auto jobs = jobs_with(paths, invocation, invocation.arguments[1]);
  const bool may_be_elsewhere = !jobs.ok() && (jobs.error().code == ErrorCode::kNotFound ||
                                               jobs.error().code == ErrorCode::kUnavailable);
  if (may_be_elsewhere && invocation.has("--job")) {
    HP_TRY_ASSIGN(const RemoteJob job,
                  open_elsewhere(invocation.options.at("--job"), jobs.error()));
    return order_at(*job.client, job.id, invocation, for_ms);
  }
  if (!jobs.ok()) return jobs.error();
  for (const JobId job : *jobs) {
    HP_TRY_ASSIGN(const auto client, controller_of(paths, job));
    HP_TRY(order_at(*client, job, invocation, for_ms));
  }
  return Ok{};
}

int run_order(const HomePaths& paths, const Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  int64_t for_ms = 0;
  if (invocation.has("--for")) {
    const auto duration = parse_duration_ms(invocation.options.at("--for"));
    if (!duration.ok())
      return report_usage(terminal, "nodes", "--for: " + duration.error().message);
    for_ms = *duration;
  }
  const Outcome done = order(paths, invocation, for_ms);
  return done.ok() ? kExitOk : report(terminal, done.error());
}

// "" = well put. What would be ignored was meant to do something.
std::string misuse(const Invocation& invocation) {
  const std::vector<std::string>& words = invocation.arguments;
  const std::string word = words.empty() ? "" : words[0];
  const bool is_order = !answer_to(word).empty();
  const bool is_check = word == kCheck;
  if (words.size() == 2 && !is_order && !is_check) {
    return "expected quarantine, release, reboot, replace or check NODE, or JOB; found \"" + word +
           "\"";
  }
  if (words.size() == 1 && (is_order || is_check)) {
    return "expected the name of a node after " + word;
  }
  for (const std::string option : {"--job", "--reason", "--for", "--yes"}) {
    const bool fits = (is_order && (word == "quarantine" || option != "--for") &&
                       (word != "release" || (option != "--reason" && option != "--yes"))) ||
                      (is_check && option == "--job");
    if (invocation.has(option) && !fits) {
      return option + " has no meaning for " + (is_order || is_check ? word : "a list of nodes");
    }
  }
  if (invocation.has("--all-users") && !is_check && word != kLemons) {
    return "-A has a meaning for lemons and check alone";
  }
  return "";
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const std::string wrong = misuse(invocation);
  if (!wrong.empty()) return report_usage(terminal, "nodes", wrong);
  const auto paths = home_from_environment();
  if (!paths.ok()) return report(terminal, paths.error());
  if (invocation.arguments.size() == 2) {
    if (invocation.arguments[0] != kCheck) return run_order(*paths, invocation);
    const std::string job = invocation.has("--job") ? invocation.options.at("--job") : "";
    return check_node(*paths, invocation,
                      {invocation.arguments[1], job, invocation.has("--all-users")});
  }
  const bool is_lemons = invocation.arguments == std::vector<std::string>{kLemons};
  if (is_lemons && invocation.has("--all-users")) {
    return show_fleet_lemons(terminal, invocation.json());
  }
  const Outcome has_files = check_directory_answers(paths->jobs());
  if (is_lemons && !has_files.ok()) return report(terminal, has_files.error());
  const auto lemons = has_files.ok() ? read_lemon_scores(*paths) : std::vector<LemonScore>();
  if (is_lemons) {
    show_lemons(terminal, lemons, invocation.json());
    return kExitOk;
  }
  const auto source = open_source(*paths);
  const auto ids = wanted_jobs(*source, invocation);
  if (!ids.ok()) return report(terminal, ids.error());
  std::vector<JobView> jobs;
  std::set<std::string> notices;
  for (const JobId id : *ids) {
    auto job = source->get_job(id);
    if (!job.ok()) {
      // One job of which nothing is known hides no other.
      if (!invocation.arguments.empty()) return report(terminal, job.error());
      notices.insert("job " + to_string(id) + " is missing: " + job.error().message);
      continue;
    }
    notices.insert(source->notice(*job));
    jobs.push_back(std::move(*job));
  }
  notices.erase("");
  for (const std::string& notice : notices) {
    terminal.err << "hpctl: " << printable(notice) << "\n";
  }
  if (!has_files.ok()) {
    terminal.err << "hpctl: " << printable(has_files.error().message) << "; LEMON is not known\n";
  }
  if (invocation.json()) {
    print_json(terminal, jobs, lemons);
  } else {
    print_table(terminal, jobs, lemons);
  }
  return kExitOk;
}

}  // namespace
}  // namespace nodes_parts

Verb nodes_verb() {
  return {"nodes",
          "[JOB | lemons | check|quarantine|release|reboot|replace NODE]",
          "list nodes; check one, put it in quarantine, have it rebooted or replaced",
          nodes_parts::kHelp,
          0,
          2,
          {{"--all-users", "-A"},
           {"--job", nullptr, "JOB"},
           {"--reason", nullptr, "TEXT"},
           {"--for", nullptr, "TIME"},
           {"--yes"}},
          nodes_parts::run,
          {"lemons", "check", "quarantine", "release", "reboot", "replace"}};
}

}  // namespace hpctl
