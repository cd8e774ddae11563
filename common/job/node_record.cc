// SPDX-License-Identifier: Apache-2.0
#include "common/job/node_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/json_text.h"

namespace hpctl {
namespace {

constexpr size_t kMaxReasonBytes = 400;
constexpr double kMostOfAJob = 2;  // without a verdict on the machine

struct Kind {
  NodeRecordKind kind;
  const char* name;
  double points;
  bool is_verdict;
};
constexpr std::array<Kind, 6> kKinds = {{
    {NodeRecordKind::kSlow, "slow", 1, false},
    {NodeRecordKind::kHang, "hang", 2, false},
    {NodeRecordKind::kLost, "lost", 2, false},
    {NodeRecordKind::kHardware, "hardware", 4, true},
    {NodeRecordKind::kCheckFailed, "check-failed", 4, true},
    {NodeRecordKind::kCheckPassed, "check-passed", 0, true},
}};

const Kind& traits_of(NodeRecordKind kind) { return kKinds.at(static_cast<size_t>(kind)); }

// The evidence of one job, or of one user's checks, against a machine.
struct Account {
  double verdict = 0;
  double rest = 0;
  double points() const { return std::max(verdict, std::min(rest, kMostOfAJob)); }
};

double left_of(const NodeRecord& record, int64_t now_wall_ms) {
  const auto age = static_cast<double>(std::max<int64_t>(0, now_wall_ms - record.wall_ms));
  return traits_of(record.kind).points * std::exp2(-age / static_cast<double>(kLemonHalfLifeMs));
}

// `records` of one machine, oldest first.
LemonScore score_of(const std::vector<NodeRecord>& records, int64_t now_wall_ms) {
  LemonScore score{records.back().node, records.back().instance, 0, 0, ""};
  const auto passed = std::find_if(records.rbegin(), records.rend(), [](const NodeRecord& r) {
    return r.kind == NodeRecordKind::kCheckPassed;
  });
  std::map<uint64_t, Account> accounts;
  double worst = 0;
  for (auto it = records.rbegin(); it != passed; ++it) {
    const double left = left_of(*it, now_wall_ms);
    Account& account = accounts[it->job];
    if (traits_of(it->kind).is_verdict) {
      account.verdict = std::max(account.verdict, left);
    } else {
      account.rest += left;
    }
    ++score.records;
    if (left <= worst) continue;
    worst = left;
    score.worst = it->reason;
  }
  for (const auto& [job, account] : accounts) score.score += account.points();
  return score;
}

}  // namespace

const char* to_string(NodeRecordKind kind) { return traits_of(kind).name; }

std::optional<NodeRecordKind> node_record_kind(std::string_view name) {
  const auto* kind = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&](const Kind& known) { return known.name == name; });
  return kind == kKinds.end() ? std::nullopt : std::optional(kind->kind);
}

std::vector<LemonScore> faded(std::vector<LemonScore> scores, int64_t after_ms) {
  const double left = std::exp2(-static_cast<double>(std::max<int64_t>(0, after_ms)) /
                                static_cast<double>(kLemonHalfLifeMs));
  for (LemonScore& score : scores) score.score *= left;
  return scores;
}

std::vector<LemonScore> higher_scores(std::vector<LemonScore> a, std::vector<LemonScore> b) {
  if (b.empty()) return a;
  std::vector<LemonScore> all = std::move(a);
  std::move(b.begin(), b.end(), std::back_inserter(all));
  std::stable_sort(all.begin(), all.end(),
                   [](const LemonScore& x, const LemonScore& y) { return x.score > y.score; });
  std::vector<LemonScore> highest;
  for (LemonScore& score : all) {
    const bool is_known = find_lemon_score(highest, score.node, score.instance) != nullptr;
    if (!is_known) highest.push_back(std::move(score));
  }
  return highest;
}

std::vector<NodeRecord> gravest_records(std::vector<NodeRecord> records, size_t most) {
  std::stable_sort(records.begin(), records.end(), [](const NodeRecord& a, const NodeRecord& b) {
    return traits_of(a.kind).points > traits_of(b.kind).points;
  });
  std::set<std::string> machines;
  std::vector<NodeRecord> gravest;
  for (NodeRecord& record : records) {
    if (gravest.size() == most) break;
    if (!machines.insert(record.instance.empty() ? record.node : record.instance).second) continue;
    gravest.push_back(std::move(record));
  }
  return gravest;
}

std::vector<LemonScore> lemon_scores(std::vector<NodeRecord> records, int64_t now_wall_ms) {
  std::stable_sort(records.begin(), records.end(),
                   [](const NodeRecord& a, const NodeRecord& b) { return a.wall_ms < b.wall_ms; });
  std::map<std::string, std::vector<NodeRecord>> machines;
  std::set<std::tuple<uint64_t, std::string, std::string>> said;
  for (NodeRecord& record : records) {
    if (now_wall_ms - record.wall_ms > kNodeRecordsKeptMs) continue;
    if (!record.key.empty() && !said.emplace(record.job, record.node, record.key).second) continue;
    const std::string& machine = record.instance.empty() ? record.node : record.instance;
    machines[machine].push_back(std::move(record));
  }
  std::vector<LemonScore> scores;
  for (const auto& [machine, its] : machines) {
    LemonScore score = score_of(its, now_wall_ms);
    if (score.score >= kLeastLemonScore) scores.push_back(std::move(score));
  }
  std::stable_sort(scores.begin(), scores.end(),
                   [](const LemonScore& a, const LemonScore& b) { return a.score > b.score; });
  return scores;
}

const LemonScore* find_lemon_score(const std::vector<LemonScore>& scores, const std::string& node,
                                   const std::string& instance) {
  for (const LemonScore& score : scores) {
    const bool knows_both = !instance.empty() && !score.instance.empty();
    if (knows_both ? score.instance == instance : score.node == node) return &score;
  }
  return nullptr;
}

std::string to_json_line(const NodeRecord& record) {
  const nlohmann::ordered_json line = {{"time", format_wall_ms(record.wall_ms)},
                                       {"job", record.job},
                                       {"node", record.node},
                                       {"instance", record.instance},
                                       {"kind", to_string(record.kind)},
                                       {"key", record.key},
                                       {"reason", record.reason.substr(0, kMaxReasonBytes)}};
  return json_text(line);
}

std::optional<NodeRecord> node_record_from_json(std::string_view line) {
  try {
    const auto document = parse_json(line, {4'096, 4, 32});
    NodeRecord record;
    record.wall_ms = parse_wall_ms(document.at("time").get<std::string>());
    record.job = document.at("job").get<uint64_t>();
    record.node = document.at("node").get<std::string>();
    record.instance = document.at("instance").get<std::string>();
    record.key = document.at("key").get<std::string>();
    record.reason = document.at("reason").get<std::string>();
    const auto kind = node_record_kind(document.at("kind").get<std::string>());
    if (!kind || record.wall_ms <= 0 || record.node.empty()) return std::nullopt;
    record.kind = *kind;
    return record;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string node_records_directory(const HomePaths& paths) {
  if (!paths.is_one_job()) return paths.home() + "/node-records";
  const std::filesystem::path jobs = std::filesystem::path(paths.home()).parent_path();
  return jobs.filename() == "jobs" ? (jobs.parent_path() / "node-records").string() : "";
}

Outcome append_node_records(const std::string& directory, const std::string& file,
                            const std::vector<NodeRecord>& records) {
  HP_TRY(make_directories(directory, 0700));
  const std::string path = directory + "/" + file;
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd.valid()) return errno_error("cannot open " + path);
  std::string lines;
  for (const NodeRecord& record : records) lines += to_json_line(record) + "\n";
  return write_all(fd.get(), lines, path);
}

void remove_old_node_records(const std::string& directory, int64_t now_wall_ms) {
  const auto names = list_directory(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string path = directory + "/" + name;
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (now_wall_ms - status.st_mtim.tv_sec * 1'000 > kNodeRecordsKeptMs) ::unlink(path.c_str());
  }
}

}  // namespace hpctl
