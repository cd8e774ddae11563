// SPDX-License-Identifier: Apache-2.0
// A shell for tests of the core: gives events their sequence number and time, and answers actions
// at once the way a healthy cluster would. Nothing fails unless the test says so.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/core/core.h"

namespace hpctl::core {

class FakeShell {
 public:
  State state;
  std::vector<LogEntry> log;
  int64_t now_ms = 1000;
  StepResult (*stepper)(State&, const Event&) = &step;
  bool checks_table = true;  // after each event: nothing of the table is left to be done

  static int64_t wall_ms(int64_t now_ms) { return 1'700'000'000'000 + now_ms; }
  StepResult feed(EventBody body);
  // Answers every open action, and those that follow, until none is left that can be answered.
  void settle();
  // Answers only the open actions of the first kind that has any; false when nothing was open.
  bool settle_one_kind();
  // Answers the open actions of that kind ("LaunchNode", ...).
  void settle_kind(const std::string& name);
  // Answers the open action of that kind of one node.
  void answer(const std::string& kind, const std::string& node);
  // The controller dies and starts again: the rows pass through the codec.
  void restart();
  // Lets time pass in one leap; the core gets a Tick for every deadline on the way.
  void pass(int64_t ms);

  JobId submit(const JobSpec& spec, uint32_t uid = 1000, const std::string& key = "");
  void progress(JobId job, uint64_t step);
  void exit_worker(JobId job, int32_t rank, int32_t code, int32_t signal = 0, uint64_t step = 0,
                   const std::string& message = "");

  const Job& job(JobId id) const { return state.jobs.at(id); }
  const Node& node(JobId id, const std::string& name) const { return state.nodes.at({id, name}); }
  const Slot& slot(JobId id, int32_t rank) const { return state.slots.at({id, Rank{rank}}); }
  std::vector<const Action*> open(ActionKind kind) const;

  // What the checkpoint directory of the job holds.
  std::string checkpoint;
  uint64_t checkpoint_step = 0;
  // The answer to PruneCheckpoints, but for action and job; to one that asks: what it verifies.
  CheckpointsPruned pruned;
  // What the mirror holds, a path and its step, and the answer to MirrorCheckpoint.
  std::string mirror_checkpoint;
  uint64_t mirror_step = 0;
  std::string mirror_problem;
  bool older_copies = false;      // some are to go
  bool claims_are_false = false;  // the second reader finds every checkpoint sound
  bool agents_confirm = false;    // they can be second readers; else the controller is
  std::string controller_node;    // where it runs; "" = on none of the job
  std::vector<std::string> recorded_damage;
  std::string lost_checkpoint;           // CheckpointChosen::lost
  std::map<Rank, WorkerOrigin> origins;  // of the processes that start; others do not tell
  ArenaSeals seals;  // in the memory of workers that end; which parts they are follows the rank
  ArenaSeals arena_of(JobId id, int32_t rank) const;
  std::map<JobId, uint64_t> newest_record;
  std::vector<WithdrawnRecord> created_late;  // newer records, of orders that were withdrawn
  bool agents_tell_ready = false;
  std::set<std::string> lemons;  // nodes that earlier jobs speak against
  bool training_moves = false;   // as the controller's table sees it
  uint64_t next_pid = 100;
  uint64_t next_boot = 1;

 private:
  void answer(const Action& action);
  void answer_all(size_t kind);
};

// Two nodes with two workers each; train, or a command when `command` is set.
JobSpec small_job(const std::string& name, bool command = false);

}  // namespace hpctl::core
