// SPDX-License-Identifier: Apache-2.0
// The node's reaction to the controller's actions: a state machine without I/O.
//
// Rules. Workers of a lower generation are ended, and gone, before a generation starts. A process
// that has left its generation and idles counts as gone: the holder lets it join the next one. A
// generation that is lower than any seen, or that was ended here, is refused. A repeated action
// gets the same answer and starts nothing twice. A start that fails for one rank fails for the
// node: its other new processes are ended. Every action is answered once it is true, or with the
// reason why not.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/worker/worker_origin.h"

namespace hpctl::agent {

// Names an action across repetitions (common/job/ids.h ActionId).
struct ActionKey {
  uint64_t seq = 0;
  uint32_t index = 0;
  auto operator<=>(const ActionKey&) const = default;
};

struct StartRequest {
  ActionKey key;
  uint64_t generation = 0;
  std::vector<int32_t> ranks;  // in order of local rank
};
struct StopRequest {
  ActionKey key;
  uint64_t generation = 0;
  uint32_t grace_ms = 0;
  uint32_t abort_ms = 0;  // holder::Kill
  bool stacks = false;    // likewise
};

// `incarnation` names the process (agent/holder/holder_protocol.h), rank and generation its part in
// the job.
struct StartedWorker {
  uint64_t incarnation = 0;
  int32_t rank = 0;
  uint64_t generation = 0;
  uint64_t pid = 0;
  WorkerOrigin origin = WorkerOrigin::kUnknown;
  auto operator<=>(const StartedWorker&) const = default;
};

// ---- what is to be done, in this order ----------------------------------------------------------

struct AcceptGeneration {
  uint64_t generation = 0;
};
struct KillThrough {
  uint64_t generation = 0;
  uint32_t grace_ms = 0;
  uint32_t abort_ms = 0;
  bool stacks = false;
};
struct SpawnRank {
  uint64_t generation = 0;
  int32_t rank = 0;
  int32_t local_rank = 0;
};
struct Done {
  ActionKey key;
  uint64_t generation = 0;
  std::vector<StartedWorker> workers;
  std::string stacks = {};  // of a stop, where the holder took them: holder::StacksTaken
};
struct Failed {
  ActionKey key;
  uint64_t generation = 0;
  std::string reason;
  bool permanent = false;
  bool node_fault = false;  // the node is unfit for the job; another may do
  bool hardware = false;    // of a node fault: a check of its devices failed
  bool reboot = false;      // of that: a reboot may mend them
};
// No worker is left and the job has ended: say Goodbye, which answers EndNode, and go.
struct NodeIsDone {};

using Decision = std::variant<AcceptGeneration, KillThrough, SpawnRank, Done, Failed, NodeIsDone>;
using Decisions = std::vector<Decision>;

inline constexpr uint32_t kEndNodeGraceMs = 1'000;

class Supervisor {
 public:
  // The holder's memory of earlier agents.
  Supervisor(uint64_t generation_seen, uint64_t ended_through)
      : generation_seen_(generation_seen), ended_through_(ended_through) {}

  Decisions start(const StartRequest& request);
  Decisions stop(const StopRequest& request);
  Decisions end(bool stacks);

  // Reports of the holder. `spawned` also serves for the workers that it lists to a new agent, and,
  // not alive, for a process that has left its generation and idles.
  Decisions spawned(const StartedWorker& worker, bool alive);
  Decisions spawn_failed(uint64_t generation, int32_t rank, const std::string& reason,
                         bool permanent);
  Decisions exited(uint64_t incarnation);

  uint64_t generation_seen() const { return generation_seen_; }
  std::vector<StartedWorker> running() const;

 private:
  // A rank in a generation and its process. A slot is filled when its spawn is requested;
  // incarnation 0 = not yet answered.
  struct Slot {
    uint64_t incarnation = 0;
    uint64_t pid = 0;
    bool alive = true;
    WorkerOrigin origin = WorkerOrigin::kUnknown;
  };
  using SlotKey = std::pair<uint64_t, int32_t>;  // generation, rank

  bool occupied(uint64_t first_generation, uint64_t last_generation) const;
  std::string refusal_of(const StartRequest& request) const;
  void give_up_start(const std::string& reason, bool permanent, Decisions& decisions);
  void advance(Decisions& decisions);
  void advance_start(Decisions& decisions);

  uint64_t generation_seen_;
  uint64_t ended_through_;
  std::map<SlotKey, Slot> slots_;  // running ones, and the ended ones of the newest generation
  std::optional<StartRequest> starting_;
  std::vector<StopRequest> stopping_;
  bool ending_ = false;
};

}  // namespace hpctl::agent
