// SPDX-License-Identifier: Apache-2.0
// The facts of one event about a job, before any consequence. A rule (rules.h) changes the rows
// that the event speaks of and leaves the rest here; reconcile() (reconcile.h) draws the
// conclusions. Facts live within one step(): longer-lived facts are rows.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "controller/core/types.h"

namespace hpctl::core {

enum class FaultKind {
  kCause,       // starts a recovery; while one is being prepared it belongs to that one
  kCollateral,  // a consequence of another fault whose report may still arrive
  kRepeated,    // starts another recovery even while one is being prepared: retries did not help
  kDamage,      // a checkpoint, or what was in memory, could not be used; bounded by their number
  kStorage,     // storage could not be read; bounded by limits.storage
};

struct Facts {
  struct SeenFault {
    Fault fault;
    FaultKind kind = FaultKind::kCause;
  };
  struct LostNode {
    std::string name;
    std::string cause;
    bool unreachable = false;  // Fault
  };
  struct End {
    JobState state = JobState::kFailed;
    std::string reason;
    bool saves_first = false;  // what only memory has
  };
  // The start point of the next generation.
  struct Origin {
    std::string checkpoint;
    uint64_t step = 0;
    Generation parent;
    Generation memory_of = {};  // Job
    std::vector<Rank> refilled = {};
    int32_t former_parts = 0;
    std::string committed = {};  // RecordGeneration
    bool in_mirror = false;      // checkpoint.dir is away, and the record goes to the mirror
  };

  std::optional<End> end;             // the event ends the job
  std::deque<SeenFault> faults;       // in the order in which they were seen
  std::deque<LostNode> lost;          // nodes with ranks whose life is over, not judged yet
  std::deque<LostNode> brought_back;  // judged: to be launched again
  bool stop_workers = false;          // somebody's order, or workers live that must not
  std::string directory_failure;      // what could not be done with the checkpoint directory
  // Then: it was the mirror that could not be searched, after this answer of checkpoint.dir.
  std::optional<FirstPlace> before_mirror;
  bool first_place_failed = false;  // then: it was checkpoint.dir that could not be searched
  std::optional<Origin> origin;     // chosen
  bool recorded = false;            // the generation's record is durable
  bool last_saved = false;          // the last generation has saved and ended
  bool look_again = false;          // what a job waits for may have changed
};

}  // namespace hpctl::core
