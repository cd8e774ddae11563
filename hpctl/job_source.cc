// SPDX-License-Identifier: Apache-2.0
#include "hpctl/job_source.h"

#include <algorithm>

#include "common/rpc/nearest_word.h"
#include "hpctl/controller_client.h"
#include "hpctl/recorded_jobs.h"
#include "hpctl/terminal.h"

namespace hpctl {
namespace {

std::string quoted(const std::string& word) { return "\"" + printable(word) + "\""; }

Error no_such_job(const std::string& word, const std::vector<JobLine>& jobs) {
  if (jobs.empty()) {
    return Error{ErrorCode::kNotFound, "no job " + quoted(word) + ": there is no job here yet"};
  }
  std::vector<std::string> names;
  for (const auto& job : jobs) names.push_back(job.name);
  const auto nearest = nearest_word(word, names);
  return Error{ErrorCode::kNotFound,
               "no job " + quoted(word) +
                   (nearest ? "; did you mean " + quoted(*nearest) + "?" : "") +
                   " `hpctl ps` lists all"};
}

Error ambiguous(const std::string& word, const std::vector<JobLine>& found) {
  constexpr size_t kShown = 5;
  std::string list;
  const size_t begin = found.size() > kShown ? found.size() - kShown : 0;
  for (size_t i = begin; i < found.size(); ++i) {
    list += (list.empty() ? "" : ", ") + to_string(found[i].job) + " " + found[i].state;
  }
  return Error{ErrorCode::kNotFound, std::to_string(found.size()) + " jobs are named " +
                                         quoted(word) + "; give an id (the newest: " + list + ")"};
}

}  // namespace

std::unique_ptr<JobSource> open_source(const HomePaths& paths) {
  if (auto client = ControllerClient::connect(paths)) return client;
  return std::make_unique<RecordedJobs>(paths);
}

Result<JobId> find_job(JobSource& source, const std::string& word) {
  HP_TRY_ASSIGN(const std::vector<JobLine> jobs, source.list_jobs());
  std::vector<JobLine> found;
  for (const auto& job : jobs) {
    if (to_string(job.job) == word) return job.job;
    if (job.name == word) found.push_back(job);
  }
  if (found.empty()) return no_such_job(word, jobs);
  if (found.size() > 1) return ambiguous(word, found);
  return found[0].job;
}

std::string record_notice(const JobSource& source, const JobView& status, const HomePaths& paths) {
  if (source.is_live() || has_ended(status.state)) return "";
  return "no controller runs for " + paths.home() +
         "; this is its last record (an agent of a running job starts it again)";
}

bool has_ended(const std::string& state) {
  return state == "FINISHED" || state == "FAILED" || state == "CANCELLED";
}

}  // namespace hpctl
