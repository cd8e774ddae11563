// SPDX-License-Identifier: Apache-2.0
// The evidence of a home's jobs against machines (common/job/node_record.h), for one controller:
// its own jobs' blame goes there, and the scores of all come back. Files are on a shared disk, so a
// separate thread reads and writes them; a failed write is reported once and dropped.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/clock.h"
#include "common/job/fenced_file.h"
#include "common/job/node_record.h"
#include "common/job/node_record_files.h"
#include "controller/core/core.h"
#include "controller/engine/task_lanes.h"

namespace hpctl {

class NodeHistory {
 public:
  // `clock` outlives it. `is_ours`: as of StatusFileWriter.
  NodeHistory(const HomePaths& paths, const Clock& clock, IsOurs is_ours);
  NodeHistory(const NodeHistory&) = delete;
  NodeHistory& operator=(const NodeHistory&) = delete;

  // The evidence of all users' jobs, from the cluster controller, as of now. Its scores that are
  // higher than ours are shown and replace ours. They fade as ours do. Before the first use.
  void add_fleet(std::vector<LemonScore> scores);
  // Reads all; blocks as the file system does. Before the first use.
  void load();
  // Owner thread: what is new in the job's rows is written down, the scores follow.
  void observe(const core::State& state, const core::Job& job);
  // Owner thread; every kRefreshMs the others' news are read, where there are any.
  void refresh(int64_t now_ms);
  // Writes what waits, then ends. The directories that hang (TaskLanes::stop).
  std::vector<std::string> stop();

  // Any thread.
  std::vector<LemonScore> scores() const;
  bool is_lemon(const std::string& node, const std::string& instance) const;

 private:
  static constexpr int64_t kRefreshMs = 60'000;
  static constexpr size_t kMostOfAJob = 500;  // records that this process writes down

  using Key = std::tuple<uint64_t, std::string, std::string>;  // job, node, key
  void write(uint64_t job, const std::vector<NodeRecord>& records);
  void take(std::vector<NodeRecord> records);

  const std::string directory_;  // "" = no home, nothing is kept
  const Clock& clock_;
  const IsOurs is_ours_;
  std::set<Key> said_;             // owner thread
  int64_t refresh_ms_ = 0;         // next time; owner thread
  bool complained_ = false;        // the lane's
  NodeRecordFiles files_;          // load()'s, then the lane's
  std::vector<LemonScore> fleet_;  // unchanged after load()
  int64_t fleet_wall_ms_ = 0;
  mutable std::mutex mutex_;
  std::vector<LemonScore> scores_;
  TaskLanes lanes_;  // last: its threads use all the above
};

}  // namespace hpctl
