// SPDX-License-Identifier: Apache-2.0
// hpctl prune: removes the jobs that ended long ago.
#include <sys/stat.h>

#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/quantity.h"
#include "hpctl/exit_codes.h"
#include "hpctl/job_removal.h"
#include "hpctl/model_directory.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace prune_parts {
namespace {

constexpr const char* kHelp = R"(
Removes every job of this HPCTL_HOME that ended longer ago than --keep says, as `hpctl rm` does: the
record, the logs and the directory. Checkpoints stay. Jobs that live, or whose state is not known,
are left alone. Models in HPCTL_HOME/models (workload.train.model.from) that no job names any more,
and that none was submitted with for as long, are removed as well.

Examples:
  hpctl prune --keep 30d --dry-run
  hpctl prune --keep 7d --checkpoints

Options:
  --keep AGE     keep jobs that ended less than AGE ago: 12h, 30d; 0s keeps none
  --dry-run      remove nothing; list the jobs
  --checkpoints  remove the checkpoints in the directories of the jobs, too, except those that a
                 later job went on from
  --json         {"dry_run", "jobs": [{"job", "name", "state", "ended_wall_ms", "checkpoints":
                 directory of those that stay, or "", "error": why it was not removed, or ""}],
                 "models": directories of imported models}

Exit codes: 0 done, also where there was no such job, 1 a job could not be removed, 2 wrong
arguments, 3 neither a controller nor HPCTL_HOME answers
)";

struct Pruned {
  JobSummary job;
  WallTime ended_at;
  std::string kept;
  std::string error;
};

// Slurm ends jobs without their controller; then the last record is as near as we know.
WallTime end_of(const HomePaths& paths, const JobSummary& job) {
  if (job.ended_at.is_known()) return job.ended_at;
  struct stat st {};
  const bool is_there = ::stat(paths.job_status(job.job).c_str(), &st) == 0;
  return is_there ? WallTime(int64_t{st.st_mtim.tv_sec} * 1000) : WallTime();
}

Result<std::vector<Pruned>> find_old(int64_t keep_ms) {
  HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
  HP_TRY_ASSIGN(const auto jobs, open_source(paths)->list_jobs());
  const WallTime latest = SystemClock().wall().before(keep_ms);
  std::vector<Pruned> old;
  for (const JobSummary& job : jobs) {
    if (!has_ended(job.state)) continue;
    const WallTime end = end_of(paths, job);
    if (end.is_known() && end <= latest) old.push_back({job, end, "", ""});
  }
  return old;
}

Result<Removal> remove(const JobSummary& job, bool with_checkpoints) {
  HP_TRY_ASSIGN(const OpenJob opened, open_removable(to_string(job.job)));
  if (!with_checkpoints) return remove_job(opened, CheckpointsOf::kKept);
  auto removed = remove_job(opened, CheckpointsOf::kRemoved);
  const bool is_refused = !removed.ok() && removed.error().code == ErrorCode::kFailedPrecondition;
  return is_refused ? remove_job(opened, CheckpointsOf::kKept) : removed;
}

// Those that are, or would be, removed.
Result<std::vector<std::string>> remove_models(int64_t keep_ms, bool is_dry) {
  HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
  HP_TRY_ASSIGN(const auto unused, find_unused_models(paths, SystemClock().wall_ms() - keep_ms));
  for (const std::string& directory : unused) {
    if (!is_dry) HP_TRY(remove_tree(directory));
  }
  return unused;
}

void print_json(const Terminal& terminal, const std::vector<Pruned>& jobs,
                const std::vector<std::string>& models, bool is_dry) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Pruned& pruned : jobs) {
    list.push_back({{"job", pruned.job.job.value},
                    {"name", pruned.job.name},
                    {"state", pruned.job.state},
                    {"ended_wall_ms", pruned.ended_at.unix_ms()},
                    {"checkpoints", pruned.kept},
                    {"error", pruned.error}});
  }
  terminal.out << json_text(nlohmann::ordered_json{
                      {"dry_run", is_dry}, {"jobs", list}, {"models", models}})
               << "\n";
}

void print(const Terminal& terminal, const std::vector<Pruned>& jobs,
           const std::vector<std::string>& models, bool is_dry) {
  for (const Pruned& pruned : jobs) {
    if (!pruned.error.empty()) {
      terminal.err << "hpctl: " << printable(pruned.error) << "\n";
      continue;
    }
    terminal.out << "job " << to_string(pruned.job.job) << " " << printable(pruned.job.name)
                 << ", which is " << pruned.job.state << " since " << format_wall(pruned.ended_at)
                 << (is_dry ? ", would be removed" : ", is removed")
                 << (pruned.kept.empty() ? std::string()
                                         : "; its checkpoints stay in " + printable(pruned.kept))
                 << "\n";
  }
  for (const std::string& directory : models) {
    terminal.out << "model " << printable(directory) << ", which no job names"
                 << (is_dry ? ", would be removed" : ", is removed") << "\n";
  }
  if (jobs.empty()) terminal.out << "no job ended so long ago\n";
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  if (!invocation.has("--keep")) {
    return report_usage(terminal, "prune", "expected --keep AGE, such as --keep 30d");
  }
  const auto keep_ms = parse_duration_ms(invocation.options.at("--keep"));
  if (!keep_ms.ok()) return report_usage(terminal, "prune", "--keep: " + keep_ms.error().message);
  auto old = find_old(*keep_ms);
  if (!old.ok()) return report(terminal, old.error());
  const bool is_dry = invocation.has("--dry-run");
  bool failed = false;
  for (Pruned& pruned : *old) {
    if (is_dry) break;
    const auto done = remove(pruned.job, invocation.has("--checkpoints"));
    if (done.ok()) {
      pruned.kept = done->kept;
    } else {
      pruned.error = done.error().message;
      failed = true;
    }
  }
  const auto models = remove_models(*keep_ms, is_dry);
  const std::vector<std::string> removed = models.ok() ? *models : std::vector<std::string>();
  if (invocation.json()) {
    print_json(terminal, *old, removed, is_dry);
  } else {
    print(terminal, *old, removed, is_dry);
  }
  if (!models.ok()) return report(terminal, models.error());
  return failed ? kExitFailed : kExitOk;
}

}  // namespace
}  // namespace prune_parts

Verb prune_verb() {
  return {"prune",
          "--keep AGE [--dry-run] [--checkpoints]",
          "remove the jobs that ended long ago",
          prune_parts::kHelp,
          0,
          0,
          {{"--keep", nullptr, "AGE"}, {"--dry-run"}, {"--checkpoints"}},
          prune_parts::run};
}

}  // namespace hpctl
