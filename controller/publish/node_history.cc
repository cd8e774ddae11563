// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/node_history.h"

#include <chrono>
#include <iterator>
#include <utility>

#include "common/base/log.h"
#include "controller/core/blame.h"

namespace hpctl {
namespace {

constexpr size_t kWaitingRecords = 64;
constexpr auto kLastRecordsPatience = std::chrono::seconds(5);

}  // namespace

NodeHistory::NodeHistory(const HomePaths& paths, const Clock& clock, IsOurs is_ours)
    : directory_(node_records_directory(paths)),
      clock_(clock),
      is_ours_(std::move(is_ours)),
      files_(directory_),
      lanes_(1, kWaitingRecords) {}

void NodeHistory::add_fleet(std::vector<LemonScore> scores) {
  fleet_ = std::move(scores);
  fleet_wall_ms_ = clock_.wall_ms();
}

void NodeHistory::take(std::vector<NodeRecord> records) {
  const int64_t now_ms = clock_.wall_ms();
  auto scores = higher_scores(lemon_scores(std::move(records), now_ms),
                              faded(fleet_, now_ms - fleet_wall_ms_));
  const std::lock_guard<std::mutex> lock(mutex_);
  scores_ = std::move(scores);
}

void NodeHistory::load() {
  if (directory_.empty()) return take({});
  remove_old_node_records(directory_, clock_.wall_ms());
  auto records = files_.look();
  for (const NodeRecord& record : records) said_.emplace(record.job, record.node, record.key);
  take(std::move(records));
}

void NodeHistory::observe(const core::State& state, const core::Job& job) {
  if (directory_.empty()) return;
  const uint64_t id = job.id.value;
  const auto said =
      std::distance(said_.lower_bound({id, "", ""}), said_.lower_bound({id + 1, "", ""}));
  std::vector<NodeRecord> fresh;
  for (NodeRecord& record : core::blame_of(state, job, clock_.wall_ms())) {
    if (static_cast<size_t>(said) + fresh.size() >= kMostOfAJob) break;
    if (!said_.emplace(record.job, record.node, record.key).second) continue;
    fresh.push_back(std::move(record));
  }
  if (fresh.empty()) return;
  lanes_.post(directory_, [this, id, fresh = std::move(fresh)] { write(id, fresh); });
}

void NodeHistory::refresh(int64_t now_ms) {
  if (directory_.empty() || now_ms < refresh_ms_) return;
  refresh_ms_ = now_ms + kRefreshMs;
  lanes_.post(directory_, [this] { write(0, {}); });
}

void NodeHistory::write(uint64_t job, const std::vector<NodeRecord>& records) {
  if (!records.empty() && is_ours_()) {
    const auto written = append_node_records(directory_, std::to_string(job) + ".jsonl", records);
    if (!written.ok() && !std::exchange(complained_, true)) {
      log_warning("lemon scores lack what this job found: " + written.error().message);
    }
  }
  take(files_.look());
}

std::vector<std::string> NodeHistory::stop() {
  return lanes_.stop(kLastRecordsPatience, TaskLanes::AtStop::kDone);
}

std::vector<LemonScore> NodeHistory::scores() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return scores_;
}

bool NodeHistory::is_lemon(const std::string& node, const std::string& instance) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const LemonScore* score = find_lemon_score(scores_, node, instance);
  return score != nullptr && score->is_lemon();
}

}  // namespace hpctl
