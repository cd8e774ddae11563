// SPDX-License-Identifier: Apache-2.0
// Who keeps the ranks of a job waiting, where a rank belongs to several groups that count their
// collectives separately. The totals of two ranks tell nothing there: a pipeline's first stage
// begins more than its last one, and a rank that waits may be kept by one that waits elsewhere.
//
// A rank waits in one place, collective n of group g. It waits there for the members of g that have
// not begun n. If all have, it waits for those that have not completed n and wait nowhere: memory
// that ranks share is read only while they call us. A rank that waits somewhere itself is not the
// cause, so the place where it waits comes next. Every such path ends in one of three ways:
//
//   a rank that waits nowhere                   it is a culprit
//   a place that waits for no known rank        no one: the network, or a rank without a report
//   a place that was on the path already        a cycle, which no rank can leave
//
// A cycle means that ranks call their collectives in different orders. That is a defect of the
// program, and no node is at fault.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "common/worker/worker_abi.h"

namespace hpctl::core {

// A group of ranks that begin the same collectives, or both ends of an edge of a pipeline.
struct GroupSight {
  struct Member {
    Rank rank;
    uint64_t begun = 0;
    uint64_t completed = 0;
    bool waits = false;  // held in the first one that is not completed; in one group at most
  };
  std::string name;             // for people: group_name()
  std::vector<Member> members;  // a rank without a report is missing
};

struct Wait {
  Rank rank;  // the first that waits there
  std::string group;
  uint64_t number = 0;  // of the collective, in this group; the first is 1
};

struct WaitsFor {
  std::vector<Rank> culprits;  // in ascending order
  std::vector<Wait> waits;     // for them directly, without those that wait for others
  std::vector<Wait> cycle;     // each waits for the next, and the last one for the first
};

// The same for any order of groups and members.
WaitsFor find_culprits(const std::vector<GroupSight>& groups);

// "tp of ranks 2 to 3", "the edge from rank 0 to rank 2"
std::string group_name(GroupKind kind, Rank first, Rank last);

// "rank 1 waits in collective 7 of tp of ranks 0 to 1"
std::string describe(const Wait& wait);

}  // namespace hpctl::core
