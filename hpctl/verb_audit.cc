// SPDX-License-Identifier: Apache-2.0
// hpctl audit: who changed something or was refused, from the audit logs of controllers.
#include <algorithm>
#include <charconv>
#include <filesystem>

#include "common/base/file.h"
#include "common/base/host.h"
#include "common/base/json_text.h"
#include "common/job/paths.h"
#include "hpctl/audit_file.h"
#include "hpctl/directory_answer.h"
#include "hpctl/exit_codes.h"
#include "hpctl/open_job.h"
#include "hpctl/submit_directory.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace audit_parts {
namespace {

constexpr const char* kHelp = R"(
Prints changes and refused calls from the audit logs (docs/security.md) of a job's controllers, or
of this HPCTL_HOME with all its jobs. With -A it prints the log of this machine's cluster
controller, which only root may read; with JOB the lines about that job. The job's user can change
a job's log, but not the copy in the machine's log: `journalctl -t hpcontroller -g audit:`.

A line is one call: time (UTC), user, role, machine, request and outcome. Each controller keeps at
least the newest 16 MiB. If there are many refusals, some are only counted.

Examples:
  hpctl audit quickstart
  hpctl audit 17 --since 1d --refused
  sudo hpctl audit -A --who alice
  hpctl audit 17 --json | jq -r 'select(.call == "QuarantineNode") | .user'

Options:
  -A, --all-users  the log of the cluster controller, /var/lib/hpctl/audit.jsonl
  --file FILE      read this audit log and the older ones beside it (FILE.1, ...), for example a
                   copy, or the log of a cluster controller with another --state-dir
  --since TIME     only the last 30m, 2h, 1d, or since 2026-11-21T09:30:00Z, or 2026-11-21
  --who USER       only calls of this user, a name or uid
  --refused        only refused and failed calls
  --tail N         only the last N lines
  --json           one object per line; docs/security.md has the keys

Exit codes: 0 shown, 1 no such job or log, or no permission to read it, 2 wrong arguments, 3 the
file system of the log does not answer
)";

struct Choice {
  std::optional<int64_t> since_ms;
  std::optional<int64_t> tail;
  std::string who;  // "" = anybody
  bool refused = false;
  uint64_t job = 0;  // 0 = any

  bool has(const AuditLine& line) const {
    if (since_ms && line.wall_ms < *since_ms) return false;
    if (refused && line.was_carried_out()) return false;
    if (job != 0 && line.number("job") != job) return false;
    return who.empty() || line.is_of(who);
  }
};

// That the file is not there is no error: nobody has been written down yet.
Outcome add(const std::string& path, AuditLines& all) {
  auto found = read_audit_log(path);
  if (found.ok()) {
    all.append(std::move(*found));
    return Ok{};
  }
  return found.error().code == ErrorCode::kNotFound ? Outcome(Ok{}) : Outcome(found.error());
}

// Of a job of Slurm each machine that had its controller has a file.
Outcome add_of_slurm_job(const HomePaths& paths, JobId job, AuditLines& all) {
  const std::string nodes = paths.job(job) + "/nodes";
  const auto names = list_directory(nodes);
  if (!names.ok()) {
    if (names.error().code == ErrorCode::kNotFound) return Ok{};
    return Error{names.error().code,
                 names.error().message +
                     "; the audit log of a job is its user's. Requests to the cluster controller "
                     "are in `hpctl audit -A " +
                     to_string(job) + "` on the head node"};
  }
  for (const std::string& name : *names) {
    HP_TRY(add(HomePaths::of_job(paths.job(job), job, name).audit_log(), all));
  }
  return Ok{};
}

Result<AuditLines> of_job(const std::string& word, Choice& choice) {
  HP_TRY_ASSIGN(const OpenJob job, open_job(word));
  HP_TRY(check_directory_answers(job.paths.jobs()));
  AuditLines all;
  HP_TRY_ASSIGN(const bool has_log, path_exists(job.paths.audit_log()));
  if (is_slurm_job(job.paths, job.id) || !has_log) {
    // All that is there is of this job, also what was refused before anybody looked at its number.
    HP_TRY(add_of_slurm_job(job.paths, job.id, all));
    return all;
  }
  choice.job = job.id.value;
  HP_TRY(add(job.paths.audit_log(), all));
  return all;
}

Result<AuditLines> of_home() {
  HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
  HP_TRY(check_directory_answers(paths.jobs()));
  AuditLines all;
  HP_TRY(add(paths.audit_log(), all));
  for (const JobId job : slurm_jobs(paths)) HP_TRY(add_of_slurm_job(paths, job, all));
  return all;
}

// That there is none is an error here: each is a file that somebody means.
Result<AuditLines> of_file(const std::string& path, bool is_of_service) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  HP_TRY(check_directory_answers(directory.empty() ? "." : directory));
  auto found = read_audit_log(path);
  if (found.ok() || !is_of_service) return found;
  Error error = found.error();
  if (error.code == ErrorCode::kNotFound) {
    error.message +=
        ": no cluster controller has run on this machine, or its --state-dir is "
        "another (--file)";
  } else if (error.code == ErrorCode::kPermissionDenied) {
    error.message += "; it is for root: sudo hpctl audit -A";
  }
  return error;
}

// Of a job that need not be known here.
Result<uint64_t> number_of(const std::string& word) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error == std::errc() && end == word.data() + word.size() && number > 0) return number;
  return Error{ErrorCode::kInvalidArgument,
               "with -A and --file JOB is a number, not \"" + printable(word) + "\""};
}

Result<Choice> choice_of(const Invocation& invocation) {
  const auto value = [&](const char* name) {
    return invocation.has(name) ? invocation.options.at(name) : std::string();
  };
  Choice choice;
  HP_TRY_ASSIGN(choice.since_ms, since_option(invocation));
  HP_TRY_ASSIGN(choice.tail, number_option(invocation, "--tail", 0, 1'000'000'000));
  choice.who = value("--who");
  choice.refused = invocation.has("--refused");
  const bool is_of_a_file = invocation.has("--all-users") || invocation.has("--file");
  if (invocation.has("--all-users") && invocation.has("--file")) {
    return Error{ErrorCode::kInvalidArgument, "either -A or --file"};
  }
  if (!is_of_a_file || invocation.arguments.empty()) return choice;
  HP_TRY_ASSIGN(choice.job, number_of(invocation.arguments[0]));
  return choice;
}

void print(const Terminal& terminal, const std::vector<AuditLine>& lines, bool as_json) {
  if (as_json) {
    for (const AuditLine& line : lines) {
      terminal.out << json_text(line.keys) << "\n";
    }
    return;
  }
  Table table({"TIME", "WHO", "AS", "FROM", "OUTCOME", "WHAT"});
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : printable(text); };
  for (const AuditLine& line : lines) {
    table.add({printable(line.text("time")), or_dash(line.who()), or_dash(line.text("role")),
               or_dash(where_from(line)), what_became_of_it(line),
               printable(what_was_asked(line))});
  }
  table.print(terminal);
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  auto choice = choice_of(invocation);
  if (!choice.ok()) return report_usage(terminal, "audit", choice.error().message);
  auto found = [&]() -> Result<AuditLines> {
    if (invocation.has("--file")) return of_file(invocation.options.at("--file"), false);
    if (invocation.has("--all-users")) {
      return of_file(system_path(std::string(kClusterStateDir) + "/audit.jsonl"), true);
    }
    return invocation.arguments.empty() ? of_home() : of_job(invocation.arguments[0], *choice);
  }();
  if (!found.ok()) return report(terminal, found.error());
  if (found->damaged > 0) {
    terminal.err << "hpctl: " << counted(static_cast<int64_t>(found->damaged), "line")
                 << " left out that no controller has written\n";
  }
  found->sort();
  std::erase_if(found->lines, [&](const AuditLine& line) { return !choice->has(line); });
  if (choice->tail && found->lines.size() > static_cast<size_t>(*choice->tail)) {
    found->lines.erase(found->lines.begin(),
                       found->lines.end() - static_cast<std::ptrdiff_t>(*choice->tail));
  }
  if (found->lines.empty() && !invocation.json()) {
    terminal.err << "nothing was written down\n";
    return kExitOk;
  }
  print(terminal, found->lines, invocation.json());
  return kExitOk;
}

}  // namespace
}  // namespace audit_parts

Verb audit_verb() {
  return {"audit",
          "[JOB] [-A] [filters]",
          "who changed something of a job, or was refused",
          audit_parts::kHelp,
          0,
          1,
          {{"--all-users", "-A"},
           {"--file", nullptr, "FILE"},
           {"--since", nullptr, "TIME"},
           {"--who", nullptr, "USER"},
           {"--refused"},
           {"--tail", nullptr, "N"}},
          audit_parts::run};
}

}  // namespace hpctl
