// SPDX-License-Identifier: Apache-2.0
// Turns samples of progress blocks into reports for the controller: heartbeats at their interval,
// one at once when a worker completes its first step, and CheckpointCommitted and BadStep when a
// progress block has them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/base/plausible.h"
#include "common/job/bad_step.h"
#include "common/job/step_figures.h"

namespace hpctl::agent {

// The collectives of one group of a rank (GroupSlot in common/worker/worker_abi.h).
struct GroupSample {
  uint32_t kind = 0;  // GroupKind
  int32_t first = 0;
  int32_t last = 0;
  uint64_t begun = 0;
  uint64_t completed = 0;
  bool waits = false;
  bool operator==(const GroupSample&) const = default;
};

// One reading of a progress page (common/worker/worker_abi.h).
struct ProgressSample {
  bool mapped = false;   // the worker has written its magic number, and what follows can be
  bool damaged = false;  // something on the page cannot be
  uint32_t phase = 0;
  float loss = 0;
  float grad_norm = 0;
  uint64_t step = 0;
  uint64_t collective = 0;
  uint32_t open_collectives = 0;  // begun and not completed
  bool computing = false;         // in the passes of a step
  // Where ranks may begin different collectives. Otherwise it is empty: `collective` tells all.
  std::vector<GroupSample> groups = {};
  uint64_t tokens = 0;
  Nanoseconds step_took{};  // 0 = unknown
  uint64_t checkpoint_step = 0;
  UnixTime started;     // the epoch = unknown
  UnixTime first_step;  // its end; the epoch = it is not complete
  StepFigures figures = {};
  // By a program that is not the built-in trainer: it knows no loss, no figures and no collectives.
  bool told_by_program = false;
};

struct Commit {
  uint64_t generation = 0;
  uint64_t step = 0;
  auto operator<=>(const Commit&) const = default;
};

// The newest reported bad step of rank 0.
struct BadStepMark {
  uint64_t generation = 0;
  uint64_t number = 0;  // BadStep::number
  auto operator<=>(const BadStepMark&) const = default;
};

// Everything that this node has reported so far and must not report again.
struct Reported {
  Commit commit;
  BadStepMark bad_step;
};

struct BadStepNews {
  BadStepMark mark;
  BadStep step;
  uint64_t missed = 0;  // before it, pushed out of the page unseen
};

// Pages are read at this pace until every worker has completed its first step, so that recovery
// time is not rounded up to a heartbeat; afterwards once per heartbeat.
inline constexpr int64_t kFirstStepPollMs = 5;

class ProgressWatch {
 public:
  // `reported`: what an earlier life of this agent has reported.
  explicit ProgressWatch(const Reported& reported = {}) : reported_(reported) {}

  // `shows_steps`: its first step is awaited. It is unknown whether a command ever reports one.
  void worker_started(int32_t rank, uint64_t generation, bool shows_steps = true);
  void worker_ended(int32_t rank, uint64_t generation);

  struct Findings {
    bool first_step = false;       // send a heartbeat now
    bool step = false;             // one was completed
    std::optional<Commit> commit;  // newer than any before: report it
  };
  Findings sampled(int32_t rank, uint64_t generation, const ProgressSample& sample);
  // The same rule for the page's last words in an exit record.
  std::optional<Commit> committed(uint64_t generation, uint64_t step);
  // Those of `steps`, the newest on rank 0's page in order, that are news. Only rank 0 tells.
  std::vector<BadStepNews> bad_step(uint64_t generation, int32_t rank,
                                    const std::vector<BadStep>& steps);

  // A worker that shows steps has not completed its first one yet.
  bool awaits_first_step() const;

 private:
  struct Watched {
    uint64_t generation = 0;
    bool shows_steps = true;
    bool stepped = false;
    uint64_t step = 0;  // the newest seen; a rollback goes back
  };
  std::map<int32_t, Watched> watched_;
  Reported reported_;
};

}  // namespace hpctl::agent
