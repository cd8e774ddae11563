// SPDX-License-Identifier: Apache-2.0
#include "hpctl/watch_round.h"

#include <utility>

#include "common/base/clock.h"
#include "common/process/user_name.h"
#include "hpctl/directory_answer.h"
#include "hpctl/fleet.h"
#include "hpctl/open_job.h"
#include "hpctl/submit_directory.h"

namespace hpctl {
namespace {

Result<WatchRound> ask_about_job(const std::string& word) {
  HP_TRY_ASSIGN(const OpenJob job, open_job(word));
  JobSnapshot snapshot = snapshot_of(job.view, SystemClock().wall());
  snapshot.user = user_name(job.view.owner);
  if (!job.source->is_live()) snapshot.silent_ms = record_age_ms(job.paths, job.id);
  snapshot.lost_directory = job.lost_directory();
  snapshot.saves_problem = job.saves_problem();
  return WatchRound{{std::move(snapshot)}, {}};
}

}  // namespace

JobSnapshot snapshot_of(const ListedJob& job) {
  JobSnapshot snapshot;
  snapshot.summary = job.summary;
  snapshot.user = job.user;
  snapshot.silent_ms = job.silent_ms;
  return snapshot;
}

Result<WatchRound> ask_about(const std::optional<std::string>& job, bool everywhere) {
  if (job) return ask_about_job(*job);
  HP_TRY_ASSIGN(Fleet fleet, everywhere ? list_everywhere() : list_home());
  WatchRound round{{}, std::move(fleet.notes)};
  HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
  // Of the jobs of everybody, some are of other homes.
  const bool has_files = !everywhere && directory_answers(paths.jobs());
  for (const ListedJob& row : fleet.jobs) {
    round.jobs.push_back(snapshot_of(row));
    if (!has_files) continue;
    round.jobs.back().lost_directory =
        lost_job_directory(paths, row.summary.job, row.summary.state);
  }
  return round;
}

}  // namespace hpctl
