// SPDX-License-Identifier: Apache-2.0
// The evidence of all users' jobs against machines, as the cluster controller combines it (decision
// 1607). Each job's controller is a process of the job's owner, so its claims are that user's
// claims. A user may claim anything, but no more than this counts:
//
//   of one job        as in a home (common/job/node_record.h), and at most kMostOfAJob machines
//   of one user       at most kMostOfAUser on a machine, below kLemonScore: one user cannot make a
//                     lemon alone; and each claim of a user against more than kBelievedMachines
//                     weighs so much less
//   when              from its first arrival here, whatever clock the user has
//
// An operator's deep check is believed: a failed one counts by itself. A passed one cancels all
// earlier claims about the machine, and their later repetitions with the same keys.
//
// Pure: times are the caller's. Bounded: kMostClaimsOfAUser, kMostClaims, the oldest go first. Not
// for several threads at once.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/result.h"
#include "common/job/node_record.h"
#include "controller/cluster/job_row.h"

namespace hpctl::cluster {

inline constexpr double kMostOfAUser = 2;
inline constexpr double kBelievedMachines = 16;
inline constexpr size_t kMostClaimsOfAUser = 512;
inline constexpr size_t kMostClaims = 8'192;
inline constexpr size_t kMostChecks = 1'024;

struct FleetLemon {
  LemonScore score;
  size_t users = 0;      // whose jobs speak against it
  bool checked = false;  // an operator's check failed
};

class NodeClaims {
 public:
  // Takes what the job says now; true: something of it is new.
  bool hear(const JobKey& job, const std::vector<NodeRecord>& said, int64_t now_wall_ms);
  // An operator's, kCheckPassed or kCheckFailed. Without an instance it is about the machine that
  // had this name last.
  void check(NodeRecord record);

  // Highest first.
  std::vector<FleetLemon> scores(int64_t now_wall_ms) const;

  // Drops what is too old to count.
  void forget_old(int64_t now_wall_ms);

  std::string to_json() const;
  // kDataLoss names `path`.
  static Result<NodeClaims> from_json(const std::string& text, const std::string& path);

 private:
  using Key = std::tuple<uid_t, uint64_t, std::string, std::string>;  // user, job, node, key

  void drop_oldest(uid_t uid);
  std::string instance_of(const std::string& node) const;

  std::map<Key, NodeRecord> claims_;
  std::vector<NodeRecord> checks_;  // oldest first
};

}  // namespace hpctl::cluster
