// SPDX-License-Identifier: Apache-2.0
#include "hpctl/fleet.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/job/time_account.h"
#include "common/process/user_name.h"
#include "common/rpc/cluster_conf.h"
#include "common/rpc/job_summary_wire.h"
#include "hpctl/directory_answer.h"
#include "hpctl/job_source.h"
#include "hpctl/slurm_answers.h"
#include "hpctl/submit_directory.h"

namespace hpctl {
namespace {

using nlohmann::ordered_json;

constexpr std::chrono::seconds kSummariesTimeout{10};
// It asks its jobs' controllers every two seconds.
constexpr uint64_t kSilentMs = 15'000;

ListedJob listed(JobSummary summary) {
  const std::string name = user_name(summary.owner);
  std::string user = name.empty() ? summary.owner : name;
  return {std::move(summary), std::move(user), ""};
}

// It has said how.
bool is_over(const v1::ClusterJob& job) { return job.summary().ended_wall_ms() > 0; }

std::string doubt_about(const v1::ClusterJob& job) {
  if (is_over(job)) return "";
  if (job.pid() == 0) return "its controller has ended and is started again";
  if (job.heard_ms() < kSilentMs) return "";
  return "its controller has not answered for " +
         short_duration(static_cast<int64_t>(job.heard_ms()));
}

ListedJob listed(const v1::ClusterJob& job, uid_t owner) {
  JobSummary summary = to_job_summary(job.summary());
  summary.job = JobId{job.job()};
  summary.owner = std::to_string(owner);
  ListedJob row = listed(std::move(summary));
  row.doubt = doubt_about(job);
  row.silent_ms = static_cast<int64_t>(std::min<uint64_t>(job.heard_ms(), INT64_MAX));
  return row;
}

using Key = std::pair<std::string, JobId>;  // uid and job
Key key_of(const ListedJob& job) { return {job.summary.owner, job.summary.job}; }

// A note on a job that is known from its record only. A live controller writes the record every few
// seconds.
std::string doubt_about_record(const JobSummary& job, int64_t age_ms) {
  const bool has_controller = job.state == "RUNNING" || job.state == "RECOVERING" ||
                              job.state == "STARTING" || job.state == "STOPPING";
  if (!has_controller || age_ms < static_cast<int64_t>(kSilentMs)) return "";
  return "its controller has written nothing for " + short_duration(age_ms);
}

template <typename T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

template <typename T>
ordered_json if_positive(T value) {
  return value > 0 ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json to_json(const ListedJob& job, WallTime now) {
  const JobSummary& s = job.summary;
  ordered_json row = {{"job", s.job.value}, {"name", s.name}, {"state", s.state}};
  row["user"] = job.user.empty() ? ordered_json(nullptr) : ordered_json(job.user);
  row["uid"] = s.owner.empty() ? ordered_json(nullptr) : ordered_json(s.owner);
  static const std::vector<const char*> kTold = {"nodes",         "ranks",
                                                 "generation",    "step",
                                                 "total_steps",   "tokens_per_second",
                                                 "step_ms",       "eta_ms",
                                                 "restarts",      "faults",
                                                 "goodput",       "lost_ms",
                                                 "age_ms",        "submitted_wall_ms",
                                                 "ended_wall_ms", "reason",
                                                 "last_fault"};
  for (const char* key : kTold) row[key] = nullptr;  // in this order, whatever is known
  row["doubt"] = job.doubt;
  if (!s.is_told()) return row;
  row["nodes"] = s.nodes;
  row["ranks"] = s.ranks;
  row["generation"] = s.generation;
  row["step"] = s.step;
  row["total_steps"] = if_positive(s.total_steps);
  row["tokens_per_second"] = if_positive(s.tokens_per_second);
  row["step_ms"] = if_positive(s.step_ms);
  row["eta_ms"] = or_null(eta_ms(s));
  row["restarts"] = s.restarts;
  row["faults"] = s.faults;
  row["goodput"] = or_null(goodput_of(s));
  row["lost_ms"] = s.spent.lost_ms();
  row["age_ms"] = or_null(elapsed_ms(s.submitted_at, now));
  row["submitted_wall_ms"] = if_positive(s.submitted_at.unix_ms());
  row["ended_wall_ms"] = if_positive(s.ended_at.unix_ms());
  row["reason"] = s.reason;
  row["last_fault"] = s.last_fault;
  return row;
}

}  // namespace

Result<std::string> cluster_to_ask() {
  HP_TRY_ASSIGN(std::string cluster, cluster_address());
  if (!cluster.empty()) return cluster;
  return Error{ErrorCode::kUnavailable,
               "-A asks the cluster controllers, and none is named: set "
               "HPCTL_CLUSTER=HOST:PORT,... or write that line to /etc/hpctl/cluster.conf; "
               "without -A it is about HPCTL_HOME"};
}

std::string fleet_json(const Fleet& fleet, bool everywhere, WallTime now) {
  ordered_json document = {{"jobs", ordered_json::array()}};
  for (const ListedJob& job : fleet.jobs) document["jobs"].push_back(to_json(job, now));
  if (everywhere) {
    document["all_users"] = fleet.all_users;
    document["notes"] = fleet.notes;
  }
  return json_text(document);
}

Fleet join_listings(const std::vector<ClusterListing>& listings, uid_t self) {
  Fleet fleet;
  std::map<Key, std::pair<uint64_t, ListedJob>> newest;  // and how long ago it was heard of
  fleet.all_users = !listings.empty();
  for (const ClusterListing& listing : listings) {
    if (!listing.jobs.ok()) {
      fleet.notes.push_back("jobs may be missing: " + listing.jobs.error().message);
      continue;
    }
    fleet.all_users = fleet.all_users && listing.jobs->all_users();
    for (const v1::ClusterJob& job : listing.jobs->jobs()) {
      const bool says_whose = listing.jobs->all_users() || job.uid() != 0;
      ListedJob row = listed(job, says_whose ? job.uid() : self);
      const bool is_heard = row.summary.is_told() && job.pid() != 0;
      uint64_t heard_ms = is_heard ? job.heard_ms() : UINT64_MAX - 1;
      // Another life of it, wherever it is, may not have said anything yet.
      if (is_over(job)) heard_ms = UINT64_MAX;
      const Key key = key_of(row);
      const auto known = newest.find(key);
      if (known == newest.end()) {
        newest.emplace(key, std::pair(heard_ms, std::move(row)));
      } else if (heard_ms < known->second.first) {
        known->second = {heard_ms, std::move(row)};
      }
    }
  }
  for (auto& [key, job] : newest) fleet.jobs.push_back(std::move(job.second));
  sort_jobs(fleet.jobs, {});
  return fleet;
}

// A live controller writes it every few seconds.
int64_t record_age_ms(const HomePaths& paths, JobId job) {
  struct stat st {};
  if (::stat(paths.job_status(job).c_str(), &st) != 0) return 0;
  const int64_t written_ms = st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1'000'000;
  return std::max<int64_t>(0, SystemClock().wall_ms() - written_ms);
}

Result<Fleet> list_home() {
  HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
  const auto source = open_source(paths);
  HP_TRY_ASSIGN(std::vector<JobSummary> jobs, source->list_jobs());
  Fleet fleet;
  const bool has_files = directory_answers(paths.jobs());
  if (!has_files) fleet.notes.push_back(describe_verdict(paths.jobs()));
  if (const std::string silent = SlurmAnswers::of_process().silence(); !silent.empty()) {
    fleet.notes.push_back("Slurm does not answer; its jobs are shown as they were recorded last: " +
                          silent);
  }
  for (JobSummary& job : jobs) {
    const int64_t silent_ms = has_files ? record_age_ms(paths, job.job) : 0;
    ListedJob row = listed(std::move(job));
    row.silent_ms = silent_ms;
    // Of another state the reason says it.
    const bool runs = has_files && row.summary.state == "RUNNING";
    const std::string lost = runs ? lost_job_directory(paths, row.summary.job) : "";
    if (!lost.empty()) {
      row.doubt = "its directory " + lost + " is gone";
    } else if (has_files && (!source->is_live() || is_slurm_job(paths, row.summary.job))) {
      row.doubt = doubt_about_record(row.summary, silent_ms);
    }
    fleet.jobs.push_back(std::move(row));
  }
  return fleet;
}

Result<Fleet> list_everywhere() {
  HP_TRY_ASSIGN(const std::string cluster, cluster_to_ask());
  const std::vector<ClusterListing> listings = list_summaries(cluster, kSummariesTimeout);
  Fleet fleet = join_listings(listings, ::geteuid());
  const auto answers = [](const ClusterListing& listing) { return listing.jobs.ok(); };
  if (std::none_of(listings.begin(), listings.end(), answers)) {
    std::string what;
    for (const ClusterListing& listing : listings) {
      what += (what.empty() ? "" : "; ") + listing.jobs.error().message;
    }
    return Error{ErrorCode::kUnavailable, what};
  }
  // A job in the queue has no controller yet, and another's may be on its own node.
  auto home = list_home();
  if (!home.ok()) {
    fleet.notes.push_back("the jobs of HPCTL_HOME are missing: " + home.error().message);
    return fleet;
  }
  HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
  fleet.notes.insert(fleet.notes.end(), home->notes.begin(), home->notes.end());
  const bool has_files = directory_answers(paths.jobs());
  for (ListedJob& job : home->jobs) {
    const auto known = std::find_if(fleet.jobs.begin(), fleet.jobs.end(), [&](const auto& other) {
      return key_of(other) == key_of(job);
    });
    if (known == fleet.jobs.end() || !has_files || !is_slurm_job(paths, job.summary.job)) {
      fleet.jobs.push_back(std::move(job));
    } else if (known->summary.ended_at.is_known()) {
      *known = std::move(job);  // it may wait in the queue again
    }
  }
  sort_jobs(fleet.jobs, {});
  return fleet;
}

}  // namespace hpctl
