// SPDX-License-Identifier: Apache-2.0
// Every decision of the controller, as one pure function.
//
//   Step(state, event) -> {dirty keys, actions, log entries}
//
// Total: any event in any state is handled; what does not fit is refused with a reason in the log.
// No I/O, clock, randomness, threads, locks or environment in this directory; the layout check
// enforces it. Time is Event::now_ms. Timers are rows (deadline_ms); next_deadline() tells the
// shell when to send a Tick. The shell commits {event, dirty rows, outbox changes, log entries} in
// one transaction and performs the actions only afterwards.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/core/types.h"

namespace hpctl::core {

struct State {
  Seq last_seq;
  int64_t now_ms = 0;  // of the last event
  JobId last_local_job;
  std::map<JobId, Job> jobs;
  std::map<NodeKey, Node> nodes;
  std::map<SlotKey, Slot> slots;
  std::map<ActionId, Action> outbox;  // issued and not yet acknowledged
};

// Which rows a Step changed; a key that is no longer in its table was deleted. `meta` stands for
// last_seq, now_ms and last_local_job.
struct Dirty {
  bool meta = false;
  std::set<JobId> jobs;
  std::set<NodeKey> nodes;
  std::set<SlotKey> slots;
  std::set<ActionId> outbox;
};

struct StepResult {
  Dirty dirty;
  std::vector<Action> actions;  // new in the outbox; perform after commit
  std::vector<LogEntry> log;    // first the event's own entry (except Tick), then decisions
  // JobSubmitted: the job created, or the existing one of the same submit_key. Empty = refused.
  std::optional<JobId> submitted;
  std::string refusal;  // JobSubmitted / CancelRequested: why not; "" = accepted
};

// Precondition: event.seq == state.last_seq + 1 and event.now_ms >= state.now_ms.
StepResult step(State& state, const Event& event);

// The earliest time at which a Tick is due; nullopt = none.
std::optional<int64_t> next_deadline(const State& state);

// Local node names of a job: "n0", "n1", ...
std::string local_node_name(int32_t index);

// Limits, in ms. Stated bounds that docs/architecture.md repeats.
inline constexpr int64_t kNodeLaunchTimeoutMs = 20'000;    // LaunchNode -> AgentRegistered
inline constexpr int64_t kStopWorkersTimeoutMs = 5'000;    // then the node counts as lost
inline constexpr int64_t kStartWorkersTimeoutMs = 10'000;  // then the node counts as lost
inline constexpr int64_t kFirstStepTimeoutMs = 600'000;    // started -> first step
inline constexpr int64_t kMaxRestartsWithoutProgress = 3;  // then FAILED with a diagnosis

}  // namespace hpctl::core
