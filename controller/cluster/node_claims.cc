// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/node_claims.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/json_text.h"

namespace hpctl::cluster {
namespace {

constexpr JsonLimits kLimits{16U << 20, 5, 16 * (kMostClaims + kMostChecks) + 64};

const std::string& machine_of(const LemonScore& score) {
  return score.instance.empty() ? score.node : score.instance;
}

// The machines of one user, each with at most what he may say of it.
std::vector<LemonScore> believed(std::vector<LemonScore> scores) {
  const double weight =
      std::min(1.0, kBelievedMachines / static_cast<double>(std::max<size_t>(1, scores.size())));
  for (LemonScore& score : scores) score.score = weight * std::min(score.score, kMostOfAUser);
  return scores;
}

void add(std::map<std::string, FleetLemon>& lemons, const LemonScore& score) {
  FleetLemon& lemon = lemons[machine_of(score)];
  const bool says_more = score.score > lemon.score.score || lemon.score.worst.empty();
  lemon.score.node = score.node;
  if (!score.instance.empty()) lemon.score.instance = score.instance;
  if (says_more) lemon.score.worst = score.worst;
  lemon.score.score += score.score;
  lemon.score.records += score.records;
}

}  // namespace

bool NodeClaims::hear(const JobKey& job, const std::vector<NodeRecord>& said, int64_t now_wall_ms) {
  bool is_new = false;
  for (const NodeRecord& record : said) {
    if (record.node.empty() || record.kind == NodeRecordKind::kCheckPassed) continue;
    const auto [place, is_first] =
        claims_.try_emplace(Key{job.uid, job.job, record.node, record.key}, record);
    if (!is_first) continue;
    place->second.job = job.job;
    place->second.wall_ms = now_wall_ms;
    is_new = true;
  }
  if (is_new) drop_oldest(job.uid);
  return is_new;
}

void NodeClaims::drop_oldest(uid_t uid) {
  const auto is_older = [](const auto& a, const auto& b) {
    return a.second.wall_ms < b.second.wall_ms;
  };
  const auto begin = claims_.lower_bound({uid, 0, "", ""});
  auto end = begin;
  size_t count = 0;
  for (; end != claims_.end() && std::get<uid_t>(end->first) == uid; ++end) ++count;
  for (; count > kMostClaimsOfAUser; --count) {
    claims_.erase(std::min_element(claims_.lower_bound({uid, 0, "", ""}), end, is_older));
  }
  while (claims_.size() > kMostClaims) {
    claims_.erase(std::min_element(claims_.begin(), claims_.end(), is_older));
  }
}

std::string NodeClaims::instance_of(const std::string& node) const {
  const NodeRecord* newest = nullptr;
  for (const auto& [key, record] : claims_) {
    const bool is_later = newest == nullptr || record.wall_ms > newest->wall_ms;
    if (record.node == node && is_later) newest = &record;
  }
  return newest == nullptr ? "" : newest->instance;
}

void NodeClaims::check(NodeRecord record) {
  record.job = 0;
  record.key.clear();
  if (record.instance.empty()) record.instance = instance_of(record.node);
  checks_.push_back(std::move(record));
  if (checks_.size() > kMostChecks) checks_.erase(checks_.begin());
}

std::vector<FleetLemon> NodeClaims::scores(int64_t now_wall_ms) const {
  std::vector<NodeRecord> passed;
  std::copy_if(checks_.begin(), checks_.end(), std::back_inserter(passed),
               [](const NodeRecord& c) { return c.kind == NodeRecordKind::kCheckPassed; });
  std::map<uid_t, std::vector<NodeRecord>> by_user;
  for (const auto& [key, record] : claims_) by_user[std::get<uid_t>(key)].push_back(record);
  std::map<std::string, FleetLemon> lemons;
  for (auto& [uid, records] : by_user) {
    records.insert(records.end(), passed.begin(), passed.end());
    for (const LemonScore& score : believed(lemon_scores(std::move(records), now_wall_ms))) {
      add(lemons, score);
      ++lemons[machine_of(score)].users;
    }
  }
  for (const LemonScore& score : lemon_scores(checks_, now_wall_ms)) {
    add(lemons, score);
    lemons[machine_of(score)].checked = true;
  }
  std::vector<FleetLemon> list;
  for (auto& [machine, lemon] : lemons) list.push_back(std::move(lemon));
  std::stable_sort(list.begin(), list.end(), [](const FleetLemon& a, const FleetLemon& b) {
    return a.score.score > b.score.score;
  });
  return list;
}

void NodeClaims::forget_old(int64_t now_wall_ms) {
  const auto is_old = [&](const NodeRecord& r) {
    return now_wall_ms - r.wall_ms > kNodeRecordsKeptMs;
  };
  std::erase_if(claims_, [&](const auto& claim) { return is_old(claim.second); });
  std::erase_if(checks_, is_old);
}

std::string NodeClaims::to_json() const {
  nlohmann::ordered_json claims = nlohmann::ordered_json::array();
  for (const auto& [key, record] : claims_) {
    claims.push_back({{"uid", std::get<uid_t>(key)}, {"record", to_json_line(record)}});
  }
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const NodeRecord& record : checks_) checks.push_back(to_json_line(record));
  return json_text(
             nlohmann::ordered_json{{"claims", std::move(claims)}, {"checks", std::move(checks)}},
             {.indent = 1}) +
         "\n";
}

Result<NodeClaims> NodeClaims::from_json(const std::string& text, const std::string& path) {
  NodeClaims read;
  nlohmann::json document;
  try {
    document = parse_json(text, kLimits);
    for (const auto& claim : document.at("claims")) {
      const auto record = node_record_from_json(claim.at("record").get<std::string>());
      if (!record) continue;  // of a later release
      const Key key{claim.at("uid").get<uid_t>(), record->job, record->node, record->key};
      read.claims_.emplace(key, *record);
    }
    for (const auto& check : document.at("checks")) {
      if (const auto record = node_record_from_json(check.get<std::string>())) {
        read.checks_.push_back(*record);
      }
    }
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, path + " cannot be used: " + problem_in(document, e)};
  }
  return read;
}

}  // namespace hpctl::cluster
