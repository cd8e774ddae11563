// SPDX-License-Identifier: Apache-2.0
// Detectors: they turn consecutive snapshots of a job into its current findings. Most need only one
// snapshot, since it says how long its facts have held (JobMargins). The others compare it with
// earlier ones, of which a watch keeps a bounded number. Thresholds are equal to those in
// deploy/prometheus/hpctl-rules.yml if there is such an alert. Pure: time is `now`; if the
// clock goes back, the latest time counts on. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/watch/finding.h"
#include "common/watch/goodput_window.h"
#include "common/watch/job_snapshot.h"

namespace hpctl {

inline constexpr int64_t kToldOfFailureMs = 3'600'000;
inline constexpr int64_t kRecoversForLongMs = 15 * 60'000;
inline constexpr int64_t kStandsStillMs = 15 * 60'000;  // or, where that is more:
inline constexpr double kStandsStillSteps = 5;          // so many times its median step
inline constexpr int64_t kSilentMs = 60'000;            // warn
inline constexpr int64_t kSilentForLongMs = 300'000;    // critical
inline constexpr int64_t kRestartsOften = 4;            // within an hour
inline constexpr double kBudgetLowShare = 0.25;         // warn; critical when nothing is left
inline constexpr int64_t kOrphanMs = 60'000;
inline constexpr int64_t kMirrorLagsMs = 1'800'000;        // warn: a copy has been due
inline constexpr int64_t kStorageAwayMs = 60'000;          // warn
inline constexpr int64_t kStorageAwayForLongMs = 900'000;  // critical
// Failed saves in a row. One alone may be a passing error.
inline constexpr uint64_t kFailedSavesWarn = 2;
inline constexpr uint64_t kFailedSavesCritical = 5;  // which takes a minute at least
inline constexpr double kGoodputFell = 0.90;
inline constexpr double kGoodputIsBack = 0.92;  // until then it has fallen
inline constexpr size_t kMostNodesTold = 20;    // findings of one kind about nodes of one job

class JobWatch {
 public:
  // `tells_old_failures`: also of a job that failed more than kToldOfFailureMs ago.
  explicit JobWatch(bool tells_old_failures) : tells_old_failures_(tells_old_failures) {}

  // In the order of kinds and nodes.
  std::vector<Finding> look(const JobSnapshot& snapshot, WallTime now);

 private:
  Finding& add(const JobSnapshot& snapshot, FindingKind kind, std::string what, std::string action);
  void add_silence(const JobSnapshot& snapshot);
  void add_end(const JobSnapshot& snapshot);
  void add_queue(const JobSnapshot& snapshot);
  void add_directory(const JobSnapshot& snapshot);
  void add_standstill(const JobSnapshot& snapshot);
  void add_storage(const JobSnapshot& snapshot);
  void add_mirror(const JobSnapshot& snapshot);
  void add_loss(const JobSnapshot& snapshot);
  void add_orphans(const JobSnapshot& snapshot);
  void add_goodput(const JobSnapshot& snapshot);
  void add_restarts(const JobSnapshot& snapshot);
  void add_nodes(const JobSnapshot& snapshot);
  void add_each(const JobSnapshot& snapshot, FindingKind kind,
                const std::vector<std::string>& nodes, const std::string& what,
                const std::string& action);

  const bool tells_old_failures_;
  WallTime now_;
  std::vector<Finding> found_;                                     // of this look
  std::map<std::pair<FindingKind, std::string>, WallTime> since_;  // of the last
  GoodputWindow goodput_;
  bool goodput_fell_ = false;
  uint64_t finite_generation_ = 0;  // where the loss was finite last; 0 = it never was
  uint64_t finite_step_ = 0;
  std::optional<WallTime> orphaned_since_;  // nullopt = no rank is
};

// The changes in one look at many jobs.
struct WatchChanges {
  std::vector<Finding> begun;  // or of another severity than before
  std::vector<Finding> ended;  // as they were last
};

class FleetWatch {
 public:
  explicit FleetWatch(bool tells_old_failures) : tells_old_failures_(tells_old_failures) {}

  // All jobs that there are: what was found of others is over.
  WatchChanges look(const std::vector<JobSnapshot>& jobs, WallTime now);
  // Ascending by owner, job, kind and node.
  std::vector<Finding> present() const;
  // nullopt = nothing is found.
  std::optional<Severity> worst() const;

 private:
  using JobKey = std::pair<std::string, JobId>;
  using FindingKey = std::tuple<std::string, JobId, FindingKind, std::string>;

  const bool tells_old_failures_;
  std::map<JobKey, JobWatch> watches_;
  std::map<FindingKey, Finding> present_;
};

}  // namespace hpctl
