// SPDX-License-Identifier: Apache-2.0
#include "hpctl/former_run.h"

#include <algorithm>
#include <vector>

#include "common/base/file.h"
#include "controller/publish/status_files.h"
#include "hpctl/job_source.h"

namespace hpctl {
namespace {

constexpr size_t kMostRecordsRead = 200;  // a status file each

bool can_continue_from(const JobView& view, const std::string& name) {
  return view.name == name && has_ended(view.state) && view.checkpoint_step > 0 &&
         is_accessible(view.checkpoint_dir);
}

}  // namespace

std::string describe_former_run(const JobSpec& spec, const HomePaths& paths) {
  const bool begins_anew =
      spec.train && spec.checkpoint.dir.empty() && spec.checkpoint.resume == "latest";
  if (!begins_anew) return "";
  const auto found = jobs_with_status_files(paths);
  if (!found.ok()) return "";
  std::vector<JobId> jobs = *found;
  std::sort(jobs.begin(), jobs.end(), [](JobId a, JobId b) { return a.value > b.value; });
  if (jobs.size() > kMostRecordsRead) jobs.resize(kMostRecordsRead);
  for (const JobId job : jobs) {
    const auto view = read_status(paths, job);
    if (!view.ok() || !can_continue_from(*view, spec.name)) continue;
    return "job " + to_string(job) + " " + spec.name + " (" + view->state +
           ") has a checkpoint of step " + std::to_string(view->checkpoint_step) +
           ", and this job starts from step 0; to go on from that one: hpctl resume " +
           to_string(job) + ", or submit with --set checkpoint.dir=" + view->checkpoint_dir;
  }
  return "";
}

}  // namespace hpctl
