// SPDX-License-Identifier: Apache-2.0
// hpctl submit: from a job file to a running job.
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/json_text.h"
#include "common/base/random_hex.h"
#include "common/job/submitted_environment.h"
#include "common/jobfile/job_yaml.h"
#include "common/net/host_port.h"
#include "controller/leadership/ask_owner.h"
#include "controller/leadership/local_submission.h"
#include "hpctl/chaos_fit.h"
#include "hpctl/chaos_run.h"
#include "hpctl/checkpoint_room.h"
#include "hpctl/cluster_placement.h"
#include "hpctl/directory_answer.h"
#include "hpctl/directory_use.h"
#include "hpctl/exit_codes.h"
#include "hpctl/former_run.h"
#include "hpctl/home_access.h"
#include "hpctl/job_file.h"
#include "hpctl/literal_variables.h"
#include "hpctl/model_directory.h"
#include "hpctl/prepare_at_submit.h"
#include "hpctl/rank_launcher.h"
#include "hpctl/second_watcher.h"
#include "hpctl/slurm_environment.h"
#include "hpctl/submit_checks.h"
#include "hpctl/submit_job.h"
#include "hpctl/submit_to_slurm.h"
#include "hpctl/verbs.h"
#include "hpctl/wait_for_job.h"
#include "hpctl/worker_memory.h"

namespace hpctl {
namespace submit_parts {
namespace {

constexpr const char* kHelp = R"(
Checks a job file and submits the job to Slurm, or with --local starts it on this machine. The job
goes on when this command ends, and when this command is interrupted. docs/job-yaml.md lists every
key; the smallest training job is

  name: first
  workload:
    train:
      model: {preset: tiny}
      data: {path: text.txt, seq_len: 128}
      batch: {global: 4}
      steps: 100

Examples:
  hpctl submit job.yaml --dry-run               check it, print it with all defaults and the
                                                batch script for Slurm
  hpctl submit job.yaml --wait                  to Slurm; follow it through queue, run, requeues
  hpctl submit job.yaml --local --wait          run it on this machine and watch
  job=$(hpctl submit job.yaml --local --json | jq .job)
  hpctl submit job.yaml --name lr2 --set workload.train.optimizer.lr=2e-4
  generate-job | hpctl submit - --local         a job file on standard input; relative paths in it
                                                count from the working directory

Options:
  --local    run on this machine, without Slurm: every node of the job is a virtual node here; a
             controller is started for HPCTL_HOME if none runs
  --wait     show progress until the job has ended; an absent slurmctld is waited for 10 minutes
             instead of 30 seconds
  --dry-run  submit nothing; it first prints what the plan chooses for keys that are auto
  --set KEY=VALUE
             use VALUE, YAML as in a job file, in place of the file's value of KEY, such as
             nodes.count=4, env.set.NCCL_DEBUG=INFO or 'workload.command=[python3, train.py]';
             may be repeated
  --name NAME
             call the job NAME, whatever the file says
  --gpu NAME the workers have this GPU, as `hpctl plan` takes it, or cpu: for keys that are auto.
             Without it, --local looks at this machine, and for Slurm slurm.gres (gpu:h100:8) tells
  --chaos PLAN
             carry the faults of this plan out, from the job's first step on, and report as
             `hpctl chaos` does; the plan is checked before the job is submitted. --wait then
             follows the job to its end
  --take-directory
             take checkpoint.dir from the job that owns it, although that job lives or does not
             answer; the history of the job says so
  --fresh    start from the beginning, or from a path (checkpoint.resume), beside checkpoints.
             They stay there, and no later job goes on from them
  --json     {"job", "name", "state"}; with --wait the job's last status as `hpctl status --json`;
             with --dry-run the resolved job, with what the plan chose in "chosen" and for Slurm
             its "batch_script"; with --chaos the report of `hpctl chaos --json`

For Slurm, HPCTL_HOME, the checkpoint directory and hpctl's programs must lie on file systems that
all nodes see. The job's directory, HPCTL_HOME/jobs/JOB, holds the batch script and its output.
Where HPCTL_CLUSTER=HOST:PORT,... (or that line in /etc/hpctl/cluster.conf) names cluster
controllers, the first that answers runs the job's controller; where none does, or HPCTL_CLUSTER is
empty, it runs on the job's first node. Where HPCTL_CLUSTER_CA=FILE (or that line) names a bundle of
certificates, hpctl uses no controller without such a certificate.

SBATCH_ACCOUNT, _CONSTRAINT, _GRES, _PARTITION, _QOS, _RESERVATION and _TIMELIMIT count where the
job file leaves out the key of that name; other SBATCH_* variables that would change a job are
refused, and so is a submission from inside a Slurm job (SLURM_JOB_ID).

Exit codes: 0 submitted (with --wait: finished; with --chaos: every fault was injected, found and
survived), 1 not accepted (with --wait: failed or cancelled; with --chaos: one fault was not), 2 bad
job file, plan, or text that is to be prepared, 3 no controller or scheduler answers, 130
interrupted while waiting
)";

struct Submitted {
  std::unique_ptr<JobSource> source;
  JobId job;
};

// A controller may die between accepting the job and saying so: ask again, with the same key.
Result<Submitted> submit_with_key(const HomePaths& paths, const JobSpec& spec,
                                  const std::string& key) {
  constexpr int kAttempts = 3;
  const std::string spec_json = to_json_text(spec);
  for (int attempt = 1;; ++attempt) {
    HP_TRY_ASSIGN(auto client, ControllerClient::ensure(paths));
    const auto job = client->submit(spec_json, key);
    if (job.ok()) return Submitted{std::move(client), *job};
    if (job.error().code != ErrorCode::kUnavailable || attempt == kAttempts) return job.error();
  }
}

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  return variables;
}

// The built-in trainer runs in the controller's, as its numbers depend on it.
Result<Submitted> submit_with_environment(const HomePaths& paths, const JobSpec& spec,
                                          const std::string& key) {
  if (!spec.command.empty()) HP_TRY(write_submitted_environment(paths, key, own_environment()));
  return submit_with_key(paths, spec, key);
}

LivingOwner living_owner(const Invocation& invocation) {
  return invocation.has("--take-directory") ? LivingOwner::kTake : LivingOwner::kRefuse;
}

// The directory is claimed first, so that of two jobs that are submitted at once one is refused.
// Until the home knows the job, the claim counts for the lock of the submission.
Result<Submitted> submit_locally(const Invocation& invocation, const HomePaths& paths,
                                 const JobSpec& spec) {
  HP_TRY(ControllerClient::ensure(paths));  // brings the rows of an older release up to date
  HP_TRY_ASSIGN(const std::string key, random_key());
  HP_TRY_ASSIGN(const LocalSubmission submission, LocalSubmission::begin(paths, key));
  const JobIdentity self =
      identify_local_job(paths, {key, spec.name, static_cast<uint32_t>(::geteuid())});
  HP_TRY_ASSIGN(const DirectoryClaim claim,
                claim_given_directory(spec, paths, self, living_owner(invocation)));
  auto submitted = submit_with_environment(paths, spec, key);
  // A controller that does not answer any more may have taken the job.
  if (!submitted.ok() && submitted.error().code != ErrorCode::kUnavailable) {
    discard_submitted_environment(paths, key);
    const Outcome undone = undo_claim(spec.checkpoint.dir, self, claim);
    if (!undone.ok()) invocation.terminal.err << "hpctl: " << undone.error().message << std::endl;
  }
  return submitted;
}

// Aloud where it is not the one that is configured.
Result<std::string> choose_cluster(const Terminal& terminal) {
  HP_TRY_ASSIGN(const Placement placement, place_controller());
  if (!placement.notice.empty()) terminal.err << "hpctl: " << placement.notice << std::endl;
  return placement.cluster;
}

// Aloud: what this shell says changes the job.
Outcome take_environment(const Terminal& terminal, JobSpec& spec) {
  HP_TRY_ASSIGN(const auto notices, take_slurm_environment(own_environment(), spec.slurm));
  for (const std::string& notice : notices) terminal.err << "hpctl: " << notice << std::endl;
  // A value of the environment is checked as one of the job file.
  if (const std::string problem = first_problem(spec); !problem.empty()) {
    return Error{ErrorCode::kInvalidArgument, problem};
  }
  return Ok{};
}

// A person at a prompt is told soon; who waits for the job's end can wait for Slurm too.
constexpr int64_t kSlurmPatienceMs = 30'000;
constexpr int64_t kLongSlurmPatienceMs = 600'000;

Result<Submitted> submit_on_slurm(const Invocation& invocation, const HomePaths& paths,
                                  const JobSpec& spec) {
  HP_TRY_ASSIGN(const std::string cluster, choose_cluster(invocation.terminal));
  const SubmitPatience patience = {
      invocation.has("--wait") ? kLongSlurmPatienceMs : kSlurmPatienceMs,
      [&](const std::string& words) {
        invocation.terminal.err << "hpctl: " << words << std::endl;
      }};
  HP_TRY_ASSIGN(const JobId job,
                submit_to_slurm(spec, paths, cluster, patience, living_owner(invocation)));
  return Submitted{open_source(paths, job), job};
}

int print_submitted(const Invocation& invocation, const JobSpec& spec, const Submitted& submitted) {
  const Terminal& terminal = invocation.terminal;
  const std::string id = to_string(submitted.job);
  if (invocation.json()) {
    // The job is accepted whatever this second question is answered.
    const auto status = submitted.source->get_job(submitted.job);
    const nlohmann::ordered_json document = {
        {"job", submitted.job.value},
        {"name", spec.name},
        {"state", status.ok() ? status->state : std::string("PENDING")}};
    terminal.out << json_text(document) << "\n";
  } else {
    terminal.out << "job " << id << " " << spec.name << " submitted\n"
                 << "  hpctl status " << id << " | hpctl logs -f " << id << " | hpctl why " << id
                 << " | hpctl cancel " << id << "\n";
  }
  return kExitOk;
}

int wait(const Invocation& invocation, const HomePaths& paths, const JobSpec& spec,
         Submitted submitted) {
  // With --json the answer is one document on stdout; what is said before it goes beside it.
  (invocation.json() ? invocation.terminal.err : invocation.terminal.out)
      << "job " << to_string(submitted.job) << " " << spec.name << " submitted: " << spec.nodes
      << " x " << spec.workers_per_node << " workers" << std::endl;
  return wait_and_report(invocation, paths, std::move(submitted.source), submitted.job);
}

// A job file that parses; without --local the batch script follows as comments, so that what is
// printed is a job file still.
int dry_run(const Invocation& invocation, const HomePaths& paths, const JobSpec& spec) {
  const Terminal& terminal = invocation.terminal;
  const std::string document = invocation.json()
                                   ? to_json_text(spec) + "\n"
                                   : describe_chosen(spec.chosen, "# ") + to_yaml(spec);
  if (invocation.has("--local")) {
    terminal.out << document;
    return kExitOk;
  }
  const auto cluster = choose_cluster(terminal);
  if (!cluster.ok()) return report(terminal, cluster.error());
  const auto submission = describe_submission(spec, paths, *cluster);
  if (!submission.ok()) return report(terminal, submission.error());
  if (invocation.json()) {
    auto json = parse_json(document);
    json["batch_script"] = submission->script;
    terminal.out << json_text(json) << "\n";
    return kExitOk;
  }
  terminal.out << document << "\n# The batch script for Slurm:\n";
  std::istringstream lines(submission->script);
  for (std::string line; std::getline(lines, line);) {
    terminal.out << (line.empty() ? "#" : "#   " + line) << "\n";
  }
  return kExitOk;
}

// A mistake in the job file.
int report_mistake(const Terminal& terminal, const Error& error) {
  report(terminal, error);
  return exit_code_of_job_file(error);
}

Outcome take_workers(const Invocation& invocation, JobSpec& spec, const JobPlace& place) {
  const std::string chosen = choose_workers(spec, place);
  if (chosen.empty()) return Ok{};
  invocation.terminal.err << "hpctl: " << chosen << std::endl;
  if (const std::string problem = first_problem(spec); !problem.empty()) {
    return Error{ErrorCode::kInvalidArgument, problem};
  }
  return Ok{};
}

// What the job file leaves to auto: once and for all, since it decides how sums are rounded.
Outcome take_choice(const Invocation& invocation, JobSpec& spec) {
  HP_TRY_ASSIGN(const auto device, gpu_option(invocation));
  const JobPlace place = {.local = invocation.has("--local"), .device = device};
  HP_TRY(take_workers(invocation, spec, place));
  if (!spec.train) return Ok{};
  const std::string misfit = choose_values(spec, find_worker_memory(spec, place));
  if (misfit.empty()) return Ok{};
  return Error{ErrorCode::kResourceExhausted,
               misfit + "; give the keys that are auto values of your own to try nevertheless"};
}

void tell_literal_variables(const Terminal& terminal, const JobSpec& spec) {
  for (const std::string& sentence : describe_literal_variables(spec)) {
    terminal.err << "hpctl: warning: " << printable(sentence) << std::endl;
  }
}

void tell_short_notice(const Terminal& terminal, const JobSpec& spec) {
  const std::string warning = describe_short_notice(spec);
  if (!warning.empty()) terminal.err << "hpctl: warning: " << warning << std::endl;
}

void tell_second_watcher(const Terminal& terminal, const JobSpec& spec) {
  const std::string watcher = describe_second_watcher(spec);
  if (!watcher.empty()) terminal.err << "hpctl: warning: " << printable(watcher) << std::endl;
}

void tell_former_run(const Terminal& terminal, const JobSpec& spec, const HomePaths& paths) {
  const std::string former = describe_former_run(spec, paths);
  if (!former.empty()) terminal.err << "hpctl: " << printable(former) << std::endl;
}

Outcome take_launcher(const Terminal& terminal, const JobSpec& spec) {
  HP_TRY_ASSIGN(const std::string warning, check_rank_launcher(spec));
  if (!warning.empty()) terminal.err << "hpctl: warning: " << printable(warning) << std::endl;
  return Ok{};
}

// The port may be in use; then the controller has chosen another one.
void tell_other_metrics(const Terminal& terminal, JobSource& source) {
  const char* wanted = std::getenv("HPCTL_METRICS");
  ControllerClient* const controller = source.controller();
  if (wanted == nullptr || controller == nullptr) return;
  const auto asked = HostPort::parse(wanted);
  const auto version = controller->version();
  if (!asked.ok() || asked->port == 0 || !version.ok()) return;
  const auto served = HostPort::parse(version->metrics());
  if (served.ok() && served->port == asked->port) return;
  terminal.err << "hpctl: "
               << (served.ok() ? "the metrics are on " + printable(version->metrics())
                               : std::string("the controller serves no metrics"))
               << ", not on HPCTL_METRICS=" << printable(wanted)
               << ": when the controller started, the address was in use or not of this machine, "
                  "or the variable was not set"
               << std::endl;
}

// The page listens from its first link on. This makes it listen, so that a port in use is known
// now.
void tell_missing_page(const Terminal& terminal, JobSource& source) {
  const char* wanted = std::getenv("HPCTL_PAGE");
  ControllerClient* const controller = source.controller();
  if (wanted == nullptr || controller == nullptr) return;
  const auto asked = HostPort::parse(wanted);
  if (!asked.ok() || asked->port == 0) return;
  const auto opened = controller->open_page("");
  if (!opened.ok()) {
    terminal.err << "hpctl: warning: " << printable(opened.error().message) << std::endl;
    return;
  }
  const std::string port = ":" + std::to_string(asked->port) + "/";
  if (opened->url().find(port) != std::string::npos) return;
  terminal.err << "hpctl: warning: the status page is at "
               << printable(opened->url().substr(0, opened->url().find("/open")))
               << ", not on HPCTL_PAGE=" << printable(wanted)
               << ": the variable was not set when the controller started" << std::endl;
}

// A warning only: there may be room by the time the job saves.
void tell_missing_room(const Terminal& terminal, const JobSpec& spec, const HomePaths& paths) {
  if (!spec.train) return;
  for (const CheckpointRoom& room : find_checkpoint_rooms(spec, &paths)) {
    const std::string missing = describe_missing_room(room, spec.checkpoint);
    if (!missing.empty()) terminal.err << "hpctl: warning: " << printable(missing) << std::endl;
  }
}

// Before anything is submitted. Without --chaos an empty plan.
Result<ChaosPlan> take_plan(const Invocation& invocation, const JobSpec& spec) {
  if (!invocation.has("--chaos")) return ChaosPlan();
  if (invocation.has("--wait") && invocation.json()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--json prints one document: the report of --chaos, or the last status of --wait; "
                 "leave one of the two out\n"};
  }
  HP_TRY_ASSIGN(ChaosPlan plan, load_chaos_plan(invocation.options.at("--chaos")));
  const std::string misfit = find_misfit(plan, spec, invocation.has("--local"));
  if (misfit.empty()) return plan;
  return Error{ErrorCode::kInvalidArgument, misfit + "\n"};
}

// Nobody looks at the job while faults are carried out but who carries them out.
int attack(const Invocation& invocation, const HomePaths& paths, const JobSpec& spec,
           Submitted submitted, const ChaosPlan& plan) {
  (invocation.json() ? invocation.terminal.err : invocation.terminal.out)
      << "job " << to_string(submitted.job) << " " << printable(spec.name)
      << " submitted; faults come when it trains" << std::endl;
  const OpenJob job{paths, submitted.job, std::move(submitted.source), {}, {}};
  const int status = run_chaos_and_report(invocation, job, plan, ChaosStart::kSubmitted);
  if (!invocation.has("--wait") || status == kExitInterrupted) return status;
  const int ended =
      wait_and_report(invocation, paths, open_source(paths, submitted.job), submitted.job);
  return status != kExitOk ? status : ended;
}

// The home, and the directories that checkpoint names.
Outcome check_places_answer(const HomePaths& paths, const CheckpointSpec& checkpoint) {
  for (const std::string& directory : {paths.jobs(), checkpoint.dir, checkpoint.mirror.dir}) {
    if (!directory.empty()) HP_TRY(check_directory_answers(directory));
  }
  return Ok{};
}

int submit(const Invocation& invocation, JobSpec spec, const std::string& file) {
  const Terminal& terminal = invocation.terminal;
  const bool local = invocation.has("--local");
  const auto paths = home_from_environment();
  if (!paths.ok()) return report(terminal, paths.error());
  if (!local) {
    if (const auto taken = take_environment(terminal, spec); !taken.ok()) {
      return report(terminal, taken.error());
    }
  }
  const auto plan = take_plan(invocation, spec);
  if (!plan.ok()) {
    terminal.err << plan.error().message;
    return kExitUsage;
  }
  if (const auto chosen = take_choice(invocation, spec); !chosen.ok()) {
    return report_mistake(terminal, chosen.error());
  }
  if (const auto launched = take_launcher(terminal, spec); !launched.ok()) {
    return report_mistake(terminal, launched.error());
  }
  const auto has_files = check_places_answer(*paths, spec.checkpoint);
  if (!has_files.ok()) return report(terminal, has_files.error());
  tell_literal_variables(terminal, spec);
  tell_second_watcher(terminal, spec);
  if (!local) tell_short_notice(terminal, spec);
  tell_former_run(terminal, spec, *paths);
  if (invocation.has("--dry-run")) return dry_run(invocation, *paths, spec);
  if (const auto ours = check_home_is_ours(*paths); !ours.ok()) {
    return report(terminal, ours.error());
  }
  if (const auto prepared = prepare_text(spec, *paths, terminal); !prepared.ok()) {
    return report_mistake(terminal, prepared.error());
  }
  if (const auto imported = import_model(spec, *paths, terminal); !imported.ok()) {
    return report_mistake(terminal, imported.error());
  }
  const auto checked =
      local ? check_before_submit(spec, *paths) : check_before_slurm_submit(spec, *paths, file);
  if (!checked.ok()) return report_mistake(terminal, checked.error());
  if (const auto anew = check_anew(spec.checkpoint, invocation.has("--fresh")); !anew.ok()) {
    return report_mistake(terminal, anew.error());
  }
  if (const auto apart = check_mirror(spec); !apart.ok()) {
    return report_mistake(terminal, apart.error());
  }
  tell_missing_room(terminal, spec, *paths);
  auto submitted =
      local ? submit_locally(invocation, *paths, spec) : submit_on_slurm(invocation, *paths, spec);
  if (!submitted.ok()) return report(terminal, submitted.error());
  if (local) {
    tell_other_metrics(terminal, *submitted->source);
    tell_missing_page(terminal, *submitted->source);
  }
  if (invocation.has("--chaos")) {
    return attack(invocation, *paths, spec, std::move(*submitted), *plan);
  }
  if (invocation.has("--wait")) return wait(invocation, *paths, spec, std::move(*submitted));
  return print_submitted(invocation, spec, *submitted);
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const std::string& file = invocation.arguments[0];
  const auto given = given_values(invocation);
  if (!given.ok()) return report_usage(terminal, "submit", given.error().message);
  const auto read = read_job_file(terminal, file, *given);
  if (!read) return kExitUsage;
  return submit(invocation, *read, file);
}

}  // namespace
}  // namespace submit_parts

int submit_job(const Invocation& invocation, JobSpec spec, const std::string& file) {
  return submit_parts::submit(invocation, std::move(spec), file);
}

Verb submit_verb() {
  return {"submit",
          "FILE|- [--local] [--wait] [--dry-run] [--set KEY=VALUE] [OPTION...]",
          "start a job described by a job file",
          submit_parts::kHelp,
          1,
          1,
          {{"--local"},
           {"--wait"},
           {"--dry-run"},
           {"--set", nullptr, "KEY=VALUE", true},
           {"--name", nullptr, "NAME"},
           {"--gpu", nullptr, "NAME"},
           {"--chaos", nullptr, "PLAN"},
           {"--take-directory"},
           {"--fresh"}},
          submit_parts::run};
}

}  // namespace hpctl
