// SPDX-License-Identifier: Apache-2.0
// What speaks against a machine across jobs, and the lemon score that follows (decision 1605).
//
// A lemon passes the checks at the start of each job and breaks jobs nevertheless. One job cannot
// tell it from bad luck or a bad program; several can. So controllers write down whom they blamed:
//
//   HPCTL_HOME/node-records/JOB.jsonl     a record per line, by the controllers of that job
//   HPCTL_HOME/node-records/checks-YYYY-MM.jsonl  by `hpctl nodes check`
//
// The score of a machine is a sum of points, each halved every kLemonHalfLifeMs since its record:
//
//   hardware, check-failed   4    a verdict on the machine itself
//   lost, hang               2    the machine was blamed; the network or the program may be at
//   fault slow, unfit              1    it held the others up; a hook or check failed without a
//   verdict worker                   0.5  a worker on it ended by itself
//
// One job says of one machine at most what its gravest record says where that is a verdict, else 2:
// a program that crashes every hour does not make a lemon of a node. check-passed takes back all
// before it. A machine is its instance id; where that is not known, the name of its node.
//
// Rules and text are pure; append_node_records() and remove_old_node_records() do I/O, and may
// block where the file system does; who reads is in node_record_files.h. Free functions; safe from
// any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/paths.h"
#include "common/base/result.h"

namespace hpctl {

enum class NodeRecordKind {
  kWorker,
  kSlow,
  kUnfit,
  kHang,
  kLost,
  kHardware,
  kCheckFailed,
  kCheckPassed,
};
const char* to_string(NodeRecordKind kind);  // "worker", ..., "check-passed"
std::optional<NodeRecordKind> node_record_kind(std::string_view name);

struct NodeRecord {
  int64_t wall_ms = 0;
  uint64_t job = 0;  // 0 = none: somebody's check
  std::string node;
  std::string instance;  // "" = not known
  NodeRecordKind kind = NodeRecordKind::kWorker;
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
// Of each machine the higher of both, highest first.
std::vector<LemonScore> higher_scores(std::vector<LemonScore> a, std::vector<LemonScore> b);
// Of each machine the record that weighs most, of `most` machines those of the gravest.
std::vector<NodeRecord> gravest_records(std::vector<NodeRecord> records, size_t most);

// A line without its end; the inverse of what was written. nullopt: not such a line.
std::string to_json_line(const NodeRecord& record);
std::optional<NodeRecord> node_record_from_json(std::string_view line);

// Where they are, of a home and of one of its jobs; "" = the job's directory is in no home.
std::string node_records_directory(const HomePaths& paths);
// `file` without its directory: "17.jsonl". One write per call, so that lines stay whole.
Outcome append_node_records(const std::string& directory, const std::string& file,
                            const std::vector<NodeRecord>& records);
// Files that nobody has written to for kNodeRecordsKeptMs.
void remove_old_node_records(const std::string& directory, int64_t now_wall_ms);

}  // namespace hpctl
