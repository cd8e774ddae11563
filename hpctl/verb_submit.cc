// SPDX-License-Identifier: Apache-2.0
// hpctl submit: from a job file to a running job.
#include <sys/random.h>

#include <array>
#include <nlohmann/json.hpp>

#include "common/rpc/job_yaml.h"
#include "hpctl/exit_codes.h"
#include "hpctl/home_access.h"
#include "hpctl/submit_checks.h"
#include "hpctl/verbs.h"
#include "hpctl/wait_for_job.h"

namespace hpctl {
namespace {

constexpr const char* kHelp = R"(
Checks a job file and starts the job. The job goes on when this command ends, and when this
command is interrupted. docs/job-yaml.md lists every key; the smallest training job is

  name: first
  workload:
    train:
      model: {preset: tiny}
      data: {path: text.txt, seq_len: 128}
      batch: {global: 4}
      steps: 100

Examples:
  hpctl submit job.yaml --dry-run               check it, print it with all defaults
  hpctl submit job.yaml --local --wait          run it on this machine and watch
  job=$(hpctl submit job.yaml --local --json | jq .job)

Options:
  --local    run on this machine: every node of the job is a virtual node here; a controller is
             started for HPCTL_HOME if none runs
  --wait     show progress until the job has ended
  --dry-run  start nothing
  --json     {"job", "name", "state"}; with --wait the job's last status as `hpctl status --json`;
             with --dry-run the resolved job

Exit codes: 0 submitted (with --wait: finished), 1 not accepted (with --wait: failed or cancelled),
2 bad job file, 3 no controller or scheduler answers, 130 interrupted while waiting
)";

// A retry with the same key is the same job.
Result<std::string> random_submit_key() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return errno_error("cannot get random bytes");
  }
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string key;
  for (const unsigned char byte : bytes) {
    key += kDigits[byte >> 4];
    key += kDigits[byte & 15];
  }
  return key;
}

struct Submitted {
  std::unique_ptr<ControllerClient> client;
  JobId job;
};

// A controller may die between accepting the job and saying so: ask again, with the same key.
Result<Submitted> submit(const HomePaths& paths, const JobSpec& spec) {
  constexpr int kAttempts = 3;
  HP_TRY_ASSIGN(const std::string key, random_submit_key());
  const std::string spec_json = to_json_text(spec);
  for (int attempt = 1;; ++attempt) {
    HP_TRY_ASSIGN(auto client, ControllerClient::ensure(paths));
    const auto job = client->submit(spec_json, key);
    if (job.ok()) return Submitted{std::move(client), *job};
    if (job.error().code != ErrorCode::kUnavailable || attempt == kAttempts) return job.error();
  }
}

int print_submitted(const Invocation& invocation, const JobSpec& spec, const Submitted& submitted) {
  const Terminal& terminal = invocation.terminal;
  const std::string id = to_string(submitted.job);
  if (invocation.json()) {
    // The job is accepted whatever this second question is answered.
    const auto status = submitted.client->get_job(submitted.job);
    const nlohmann::ordered_json document = {
        {"job", submitted.job.value},
        {"name", spec.name},
        {"state", status.ok() ? status->state : std::string("PENDING")}};
    terminal.out << document.dump() << "\n";
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
  return wait_and_report(invocation, paths, std::move(submitted.client), submitted.job);
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const std::string& file = invocation.arguments[0];
  const JobYaml parsed = load_job_yaml(file);
  if (!parsed.spec) {
    terminal.err << describe_problems(printable(file), parsed.problems);
    return kExitUsage;
  }
  const JobSpec& spec = *parsed.spec;
  if (invocation.has("--dry-run")) {
    terminal.out << (invocation.json() ? to_json_text(spec) + "\n" : to_yaml(spec));
    return kExitOk;
  }
  if (!invocation.has("--local")) {
    terminal.err << "hpctl: no scheduler: Slurm is not available yet in this version; add --local "
                    "to run the job on this machine\n";
    return kExitNoController;
  }
  const auto paths = home_from_environment();
  if (!paths.ok()) return report(terminal, paths.error());
  if (const auto ours = check_home_is_ours(*paths); !ours.ok()) {
    return report(terminal, ours.error());
  }
  if (const auto checked = check_before_submit(spec, *paths); !checked.ok()) {
    return report(terminal, checked.error());
  }
  auto submitted = submit(*paths, spec);
  if (!submitted.ok()) return report(terminal, submitted.error());
  if (invocation.has("--wait")) return wait(invocation, *paths, spec, std::move(*submitted));
  return print_submitted(invocation, spec, *submitted);
}

}  // namespace

Verb submit_verb() {
  return {"submit",
          "FILE [--local] [--wait] [--dry-run]",
          "start a job described by a job file",
          kHelp,
          1,
          1,
          {{"--local"}, {"--wait"}, {"--dry-run"}},
          run};
}

}  // namespace hpctl
