// SPDX-License-Identifier: Apache-2.0
#include "hpctl/job_source.h"

#include <algorithm>
#include <map>

#include "common/jobfile/nearest_word.h"
#include "hpctl/controller_client.h"
#include "hpctl/directory_answer.h"
#include "hpctl/job_lives.h"
#include "hpctl/recorded_jobs.h"
#include "hpctl/silent_home.h"
#include "hpctl/slurm_record.h"
#include "hpctl/submit_directory.h"
#include "hpctl/terminal.h"

namespace hpctl {
namespace {

std::string quoted(const std::string& word) { return "\"" + printable(word) + "\""; }

Error no_such_job(const std::string& word, const std::vector<JobSummary>& jobs) {
  if (jobs.empty()) {
    // Who forgot to set HPCTL_HOME sees it here.
    const auto paths = home_from_environment();
    return Error{ErrorCode::kNotFound, "no job " + quoted(word) + ": there is no job in " +
                                           (paths.ok() ? paths->home() : "HPCTL_HOME") + " yet"};
  }
  std::vector<std::string> names;
  for (const auto& job : jobs) names.push_back(job.name);
  const auto nearest = nearest_word(word, names);
  return Error{ErrorCode::kNotFound,
               "no job " + quoted(word) +
                   (nearest ? "; did you mean " + quoted(*nearest) + "?" : ";") +
                   " `hpctl ps` lists all"};
}

Error several_live(const std::string& word, const std::vector<JobSummary>& live) {
  constexpr size_t kShown = 5;
  std::string list;
  const size_t begin = live.size() > kShown ? live.size() - kShown : 0;
  for (size_t i = begin; i < live.size(); ++i) {
    list += (list.empty() ? "" : ", ") + to_string(live[i].job) + " " + live[i].state;
  }
  return Error{ErrorCode::kNotFound, std::to_string(live.size()) + " live jobs are named " +
                                         quoted(word) + "; give an id (the newest: " + list + ")"};
}

std::unique_ptr<JobSource> open_local(const HomePaths& paths) {
  if (auto client = ControllerClient::connect(paths)) return client;
  return std::make_unique<RecordedJobs>(paths);
}

std::unique_ptr<JobSource> open_without_files(const HomePaths& paths) {
  return std::make_unique<SilentHome>(paths, ControllerClient::connect(paths));
}

// The jobs of the local controller and those of Slurm, behind one interface.
class HomeJobs final : public JobSource {
 public:
  explicit HomeJobs(const HomePaths& paths) : paths_(paths), local_(open_local(paths)) {}

  Result<std::vector<JobSummary>> list_jobs() override {
    HP_TRY_ASSIGN(std::vector<JobSummary> jobs, local_->list_jobs());
    HP_TRY_ASSIGN(const std::vector<JobSummary> slurm, SlurmRecord(paths_).list_jobs());
    jobs.insert(jobs.end(), slurm.begin(), slurm.end());
    std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.job < b.job; });
    return jobs;
  }
  Result<JobView> get_job(JobId job) override { return source_of(job).get_job(job); }
  Result<std::vector<EventView>> events(JobId job, uint64_t after_seq) override {
    return source_of(job).events(job, after_seq);
  }
  Result<Explanation> why(JobId job) override { return source_of(job).why(job); }
  bool is_live() const override { return local_->is_live(); }
  std::string notice(const JobView& job) const override {
    const auto slurm = slurm_.find(JobId{job.job});
    return (slurm == slurm_.end() ? *local_ : *slurm->second).notice(job);
  }

 private:
  JobSource& source_of(JobId job) {
    if (!is_slurm_job(paths_, job)) return *local_;
    auto& source = slurm_[job];
    if (source == nullptr) source = open_source(paths_, job);
    return *source;
  }

  HomePaths paths_;
  std::unique_ptr<JobSource> local_;
  std::map<JobId, std::unique_ptr<JobSource>> slurm_;
};

}  // namespace

std::unique_ptr<JobSource> open_source(const HomePaths& paths) {
  if (!directory_answers(paths.jobs())) return open_without_files(paths);
  return std::make_unique<HomeJobs>(paths);
}

std::unique_ptr<JobSource> open_source(const HomePaths& paths, JobId job) {
  if (!directory_answers(paths.jobs())) return open_without_files(paths);
  if (!is_slurm_job(paths, job)) return open_local(paths);
  auto client = ControllerClient::connect(paths, job);
  if (!client.ok()) return std::make_unique<SlurmRecord>(paths, client.error().message);
  return join_lives(std::move(*client), open_record(paths, job));
}

std::unique_ptr<JobSource> open_record(const HomePaths& paths, JobId job) {
  if (!directory_answers(paths.jobs())) return std::make_unique<SilentHome>(paths, nullptr);
  if (is_slurm_job(paths, job)) return std::make_unique<SlurmRecord>(paths);
  return std::make_unique<RecordedJobs>(paths);
}

Result<FoundJob> find_job(JobSource& source, const std::string& word) {
  HP_TRY_ASSIGN(const std::vector<JobSummary> jobs, source.list_jobs());
  std::vector<JobSummary> named;
  std::vector<JobSummary> live;
  for (const auto& job : jobs) {
    if (to_string(job.job) == word) return FoundJob{job.job, ""};
    if (job.name != word) continue;
    named.push_back(job);
    if (!has_ended(job.state)) live.push_back(job);
  }
  if (named.empty()) return no_such_job(word, jobs);
  if (live.size() > 1) return several_live(word, live);
  const JobSummary& chosen = live.empty() ? named.back() : live.front();
  if (named.size() == 1) return FoundJob{chosen.job, ""};
  return FoundJob{chosen.job, "job " + to_string(chosen.job) + " is the " +
                                  (live.empty() ? "newest" : "live one") + " of " +
                                  std::to_string(named.size()) + " jobs named " + quoted(word)};
}

JobSummary unknown_job(JobId job, const std::string& name) {
  JobSummary summary;
  summary.job = job;
  summary.name = name;
  summary.state = "UNKNOWN";
  return summary;
}

bool has_ended(const std::string& state) {
  return state == "FINISHED" || state == "FAILED" || state == "CANCELLED" || state == "TIMEOUT";
}

}  // namespace hpctl
