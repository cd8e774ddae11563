// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/fleet_answers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/json.h"
#include "common/process/user_name.h"
#include "common/rpc/job_summary_wire.h"
#include "controller/page/page_rows.h"

namespace hpctl::cluster {
namespace {

using nlohmann::json;

// The key of a job in the page's addresses: jobs of two users may have the same number.
std::string to_page_key(const JobKey& key) {
  return std::to_string(key.uid) + "." + std::to_string(key.job);
}

bool is_over(const JobSummary& summary) { return summary.ended_at.is_known(); }

json job_row(const JobKey& key, const JobSummary& summary, int64_t heard_ms,
             const std::vector<Finding>& found) {
  json row = page_job_row(summary, found);
  const std::string name = user_name(summary.owner);
  if (!name.empty()) row["user"] = name;
  row["key"] = to_page_key(key);
  row["heard_ms"] = is_over(summary) ? 0 : heard_ms;
  return row;
}

// The job's note about a node; "" = none.
const char* note_on(const JobSummary& summary, const std::string& node) {
  if (!summary.margins) return "";
  const auto has = [&](const std::vector<std::string>& nodes) {
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  };
  if (has(summary.margins->quarantined)) return "in quarantine";
  return has(summary.margins->slow) ? "slow" : "";
}

struct NodeOfJobs {
  json jobs = json::array();  // places in the list
  const char* note = "";
};

json rows_of(std::map<std::string, NodeOfJobs>& nodes) {
  json rows = json::array();
  for (auto& [name, node] : nodes) rows.push_back({name, std::move(node.jobs), node.note});
  return rows;
}

// [name, which of these jobs have it, note], ascending by name; ended jobs have none. For the first
// kMostNodesShown that the jobs name.
json node_rows(const std::vector<const JobSummary*>& jobs) {
  std::map<std::string, NodeOfJobs> nodes;
  size_t named = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (is_over(*jobs[i])) continue;
    for (const std::string& name : jobs[i]->nodes) {
      if (named++ == FleetAnswers::kMostNodesShown) return rows_of(nodes);
      NodeOfJobs& node = nodes[name];
      node.jobs.push_back(i);
      const char* note = note_on(*jobs[i], name);
      if (*note != '\0') node.note = note;
    }
  }
  return rows_of(nodes);
}

// [node, score, why]: everybody may know which machines are bad; whose job said what is for those
// who see all jobs.
json lemon_rows(const std::vector<FleetLemon>& lemons, bool with_reasons) {
  json rows = json::array();
  for (const FleetLemon& lemon : lemons) {
    if (!lemon.score.is_lemon() || rows.size() == FleetAnswers::kMostLemonsShown) break;
    rows.push_back({lemon.score.node, lemon.score.score, with_reasons ? lemon.score.worst : ""});
  }
  return rows;
}

// [what to run, what it shows]
json commands(uint64_t job, bool is_own, bool is_over) {
  const std::string id = std::to_string(job);
  json list = json::array();
  if (is_own && !is_over) {
    list.push_back({"hpctl open " + id, "its own page: plots, ranks, nodes and events"});
  }
  list.push_back({"hpctl status " + id, "its ranks and nodes"});
  list.push_back({"hpctl why " + id, "what led to the present state"});
  return list;
}

}  // namespace

FleetAnswers::Picture FleetAnswers::take_picture() {
  Picture rows;
  std::vector<JobSnapshot> snapshots;
  for (const v1::ClusterJob& job : jobs_()) {
    Row& row = rows.emplace_back();
    row.key = {job.uid(), job.job()};
    row.summary = to_job_summary(job.summary());
    row.summary.job = JobId{job.job()};
    row.summary.owner = std::to_string(job.uid());
    row.heard_ms = static_cast<int64_t>(std::min<uint64_t>(job.heard_ms(), INT64_MAX));
    JobSnapshot& snapshot = snapshots.emplace_back();
    snapshot.summary = row.summary;
    snapshot.silent_ms = is_over(row.summary) ? 0 : row.heard_ms;
  }
  watch_.look(snapshots, clock_.wall());
  std::map<std::pair<std::string, JobId>, std::vector<Finding>> found;
  for (Finding& finding : watch_.present()) {
    found[{finding.owner, finding.job}].push_back(std::move(finding));
  }
  for (Row& row : rows) {
    const auto of_it = found.find({row.summary.owner, row.summary.job});
    if (of_it != found.end()) row.found = std::move(of_it->second);
  }
  return rows;
}

std::shared_ptr<const FleetAnswers::Picture> FleetAnswers::picture() {
  const std::lock_guard lock(mutex_);
  const int64_t now_ms = clock_.monotonic_ms();
  if (picture_ == nullptr || now_ms - taken_ms_ >= kPictureMs) {
    picture_ = std::make_shared<const Picture>(take_picture());
    taken_ms_ = now_ms;
  }
  return picture_;
}

std::vector<const FleetAnswers::Row*> FleetAnswers::seen(const Picture& picture, uid_t uid,
                                                         bool all) {
  std::vector<const Row*> rows;
  for (const Row& row : picture) {
    if (all || row.key.uid == uid) rows.push_back(&row);
  }
  return rows;
}

Result<std::string> FleetAnswers::answer(uint32_t uid, const PageServer::Request& request) {
  if (request.path == "/api/jobs") return jobs(uid);
  if (request.path == "/api/job") return job(uid, request.id);
  return Error{ErrorCode::kNotFound, "its own page has the history of a job: hpctl open JOB"};
}

Result<std::string> FleetAnswers::jobs(uid_t uid) {
  const auto picture = this->picture();
  const bool all = sees_all_(uid);
  json jobs = json::array();
  std::vector<const JobSummary*> summaries;
  for (const Row* row : seen(*picture, uid, all)) {
    jobs.push_back(job_row(row->key, row->summary, row->heard_ms, row->found));
    summaries.push_back(&row->summary);
  }
  return page_json_text({{"now_ms", clock_.wall_ms()},
                         {"node", node_},
                         {"version", version_},
                         {"fleet", true},
                         {"all_users", all},
                         {"jobs", std::move(jobs)},
                         {"node_rows", node_rows(summaries)},
                         {"lemons", lemon_rows(lemons_(), all)}});
}

Result<std::string> FleetAnswers::job(uid_t uid, const std::string& key) {
  const auto picture = this->picture();
  const bool all = sees_all_(uid);
  for (const Row* row : seen(*picture, uid, all)) {
    if (to_page_key(row->key) != key) continue;
    const JobSummary& summary = row->summary;
    json answer = job_row(row->key, summary, row->heard_ms, row->found);
    answer["now_ms"] = clock_.wall_ms();
    answer["fleet"] = true;
    answer["last_fault"] = summary.last_fault;
    answer["time"] = page_time_rows(account_of(summary));
    answer["node_rows"] = node_rows({&summary});
    answer["lemons"] = lemon_rows(lemons_(), all);
    answer["commands"] = commands(row->key.job, row->key.uid == uid, is_over(summary));
    return page_json_text(answer);
  }
  return Error{ErrorCode::kNotFound, "there is no such job, or it ended more than an hour ago"};
}

}  // namespace hpctl::cluster
