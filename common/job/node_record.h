// SPDX-License-Identifier: Apache-2.0
// Evidence against a machine across jobs, and its lemon score (decision 1605).
//
// A lemon passes the checks at the start of each job and still breaks jobs. One job cannot
// distinguish it from bad luck or a bad program; several can. So controllers record the nodes that
// they blame:
//
//   HPCTL_HOME/node-records/JOB.jsonl     a record per line, by the controllers of that job
//   HPCTL_HOME/node-records/checks-YYYY-MM.jsonl  by `hpctl nodes check`
//
// The score of a machine is a sum of points, each halved every kLemonHalfLifeMs since its record:
//
//   hardware, check-failed   4    a verdict on the machine itself
//   lost                     2    the machine stopped answering; its network may be the cause
//   hang                     2    hangs that ended when the job left the machine
//   slow                     1    slowness that ended when the job left the machine
//
// controller/core/blame.h says when a job has such evidence. Faults of a program are none: records
// of the kinds worker and unfit, which earlier releases wrote, are ignored.
//
// One job counts against one machine with its gravest record if that is a verdict, else with at
// most 2 points, so that no job alone makes a lemon of a node. check-passed cancels all records
// before it. A machine is its instance id, or the name of its node if the id is
// unknown.
//
// Rules and text are pure; append_node_records() and remove_old_node_records() do I/O, and may
// block if the file system does. The reader is in node_record_files.h. Free functions; safe from
// any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/job/paths.h"

namespace hpctl {

enum class NodeRecordKind {
  kSlow,
  kHang,
  kLost,
  kHardware,
  kCheckFailed,
  kCheckPassed,
};
const char* to_string(NodeRecordKind kind);  // "slow", ..., "check-passed"
std::optional<NodeRecordKind> node_record_kind(std::string_view name);

struct NodeRecord {
  int64_t wall_ms = 0;
  uint64_t job = 0;  // 0 = none: somebody's check
  std::string node;
  std::string instance;  // "" = not known
  NodeRecordKind kind = NodeRecordKind::kSlow;
  std::string key;  // a job does not say the same twice; "" = it may be said again
  std::string reason;
};

inline constexpr int64_t kLemonHalfLifeMs = 7LL * 24 * 3'600 * 1'000;
inline constexpr int64_t kNodeRecordsKeptMs = 60LL * 24 * 3'600 * 1'000;
inline constexpr double kLemonScore = 3;          // from here on it is one
inline constexpr double kLeastLemonScore = 0.05;  // below it nothing is shown

struct LemonScore {
  std::string node;      // by its newest record
  std::string instance;  // "" = not known
  double score = 0;
  size_t records = 0;  // that count
  std::string worst;   // the reason that weighs most now

  bool is_lemon() const { return score >= kLemonScore; }
};

// Those of at least kLeastLemonScore, highest first. Records of a key that repeat in a job count
// once.
std::vector<LemonScore> lemon_scores(std::vector<NodeRecord> records, int64_t now_wall_ms);
// That of a machine; nullptr = nothing speaks against it. An instance that is known and differs is
// another machine under the same name.
const LemonScore* find_lemon_score(const std::vector<LemonScore>& scores, const std::string& node,
                                   const std::string& instance);

// Scores so much later.
std::vector<LemonScore> faded(std::vector<LemonScore> scores, int64_t after_ms);
// The higher of both scores for each machine, highest first.
std::vector<LemonScore> higher_scores(std::vector<LemonScore> a, std::vector<LemonScore> b);
// The record that weighs most for each machine, for at most `most` machines, the gravest first.
std::vector<NodeRecord> gravest_records(std::vector<NodeRecord> records, size_t most);

// A line without its end; the inverse of what was written. nullopt: not such a line.
std::string to_json_line(const NodeRecord& record);
std::optional<NodeRecord> node_record_from_json(std::string_view line);

// Where they are, of a home and of one of its jobs; "" = the job's directory is in no home.
std::string node_records_directory(const HomePaths& paths);
// `file` without its directory: "17.jsonl". One write per call, so that lines stay whole.
Outcome append_node_records(const std::string& directory, const std::string& file,
                            const std::vector<NodeRecord>& records);
// Removes files without a write for kNodeRecordsKeptMs.
void remove_old_node_records(const std::string& directory, int64_t now_wall_ms);

}  // namespace hpctl
