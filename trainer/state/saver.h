// SPDX-License-Identifier: Apache-2.0
// Checkpoints of one rank: written by a separate thread while training goes on. At most one save
// runs at a time. With a free slot (decisions 1305, 1306) the thread reads the sealed state in
// place, and training does not wait; otherwise it writes a copy.
//
// The ranks never wait for each other's disks. Each step's all-reduce carries the report of each
// rank (SaveNews), so all ranks see the same reports at the same step boundary and take the same
// turn there:
//
//   idle --begin()--> writing    every rank's thread writes its shard
//   writing, every rank reported written or failed:
//        all written: receipts are exchanged, rank 0's thread commits the manifest --> committing
//        storage failed: rank 0's thread removes the partial save --> clearing
//        any failed otherwise: the reason is exchanged, rank 0 removes the partial save, all stop
//   committing, rank 0 reported: --> idle, the checkpoint exists; storage failed: --> clearing;
//        otherwise all ranks stop with the reason
//   clearing, rank 0 reported: --> idle, or all ranks stop where storage failed for too long
//
// A commit may fail after its manifest got its name, in the sync of the directory. Clearing then
// syncs again, and the checkpoint counts: a second save of that step would find it committed.
//
// A save that becomes due during another begins when that one is done. A job that was told to end
// may lack the time for both: then the ranks give up the older one (hurried_save.h), which goes
// through clearing and counts as no failure.
//
// When the generation must end, no rank waits for its thread. A shard is given up at its next
// piece, since no rank would commit it. A commit goes on: lineage ignores it if the next generation
// starts before its step. While the thread is in a call that nothing interrupts, the process stays
// out of the next generation (when_idle()).
//
// Failing storage (the file server is down, a mount is stale, the disk is full) does not end
// training, because that would lose more than it saves. The save is tried again, with growing
// pauses, at the next step boundary after each; limits.storage bounds how long. A full disk is
// reported to the controller (out_of_space()), which deletes older checkpoints; no worker deletes
// one.
//
// If the directory belongs to another job by now, saves are owed, too. At the end of training that
// ends the process, and the controller, which looks for itself, ends the job or begins again.
//
// A missing or forbidden directory is a mistake in the job file until the directory has worked once
// for this job; from then on it is failing storage. An exception while a save is written (a failed
// GPU shows there, too) is a fault of its rank: that one ends with its reason, the others as its
// consequence, and the job is restarted.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/result.h"
#include "common/worker/workload.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/shard_writer.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/hurried_save.h"
#include "trainer/state/training_state.h"

namespace hpctl {

// Counts over ranks: summed in the step's all-reduce.
struct SaveNews {
  double finished = 0;  // ranks whose background work of this turn is done, well or not
  double failed = 0;    // of these, with an error
};

class Saver {
 public:
  // All outlive it.
  Saver(const Workload& workload, TrainingState& state, Communicator& comm);
  // Waits for the thread, which reads the state: bounded by the disk.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // This rank's news for the all-reduce of a step.
  SaveNews news() const;

  // At the step boundary, after the state moved on; `sum` = the all-reduced news and `due` = a save
  // of the state is wanted now (the same on all ranks). A collective when a turn is taken. Errors:
  // the failure of any rank's save, on every rank; kPeerLost.
  Outcome at_boundary(const SaveNews& sum, bool due);

  // How long ago this rank was told to end; nullopt = it was not.
  using SinceStop = std::optional<double> (*)();

  // Ends with a durable checkpoint of the present state. Before that it finishes the save under
  // way, or gives it up if a rank was told to end and the time does not suffice for both. While
  // storage fails it waits as training does, after it has called `on_failure`; false when it gave
  // up because a rank was told to end. A collective.
  Result<bool> finish(SinceStop since_stop, const std::function<void()>& on_failure);

  // The last attempt failed for storage: nothing is due but rank 0's retry_due().
  bool is_failing() const { return failing_since_.has_value(); }
  // By this rank's clock.
  bool retry_due() const { return turn_ == Turn::kIdle && Clock::now() >= next_attempt_; }
  // Attempts that storage made fail, so far.
  uint64_t failed_saves() const { return failed_saves_; }
  // The newest of them, in a row; 0 = the newest save is durable.
  uint64_t failed_in_a_row() const { return failed_in_a_row_; }
  // The newest consecutive ones of these that found the disk full.
  uint64_t out_of_space() const { return out_of_space_; }

  // The generation ends: finish() and settle() return kPeerLost, and a shard is given up. Any
  // thread.
  void abort();
  // After abort(): calls `done` once the thread has ended its work, from that thread, or at once.
  void when_idle(std::function<void()> done);

  // Finishes what is under way; nothing of it stays pending. A collective.
  Outcome settle();
  // After going back to `step`: this process's later saves do not exist any more.
  void forget_after(uint64_t step);

  // Step of the newest checkpoint this process saw committed; 0 = none.
  uint64_t committed_step() const { return committed_step_; }
  // The size of the copies that saves of this object have made; 0 = all have read slots.
  size_t copy_bytes() const { return copy_.size(); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Turn { kIdle, kWriting, kCommitting, kClearing };

  void begin();
  std::vector<ShardPart> parts_of_save() const;
  std::vector<const std::byte*> read_sealed(const std::vector<ShardPart>& parts);
  // Where part number `index` of a save lies in the state.
  ElementRange range_in_state(size_t index) const {
    return written_[index % written_.size()].range;
  }
  void give_values(const std::vector<const std::byte*>& sources, std::vector<ShardPart>& parts);
  void run(std::function<Result<std::string>()> work);
  Outcome take_turn(const SaveNews& sum);
  Outcome exchange_receipts();
  Outcome wait_for_turn();
  Outcome wait_or_give_up(SinceStop since_stop);
  SaveVotes vote(double since_stop_s) const;
  void give_up_save();
  void begin_clearing_what_was_given_up();
  void remove_partial_save() const;
  Outcome await_thread();
  Outcome await_thread_for(std::chrono::milliseconds at_most);
  Error aborted() const;
  Outcome conclude_commit();
  void note_committed();
  Outcome end_failed(const std::map<int32_t, Error>& failures);
  bool is_of_storage(const Error& failure) const;
  bool is_doubtful() const;
  bool make_manifest_durable() const;
  void begin_clearing(const Error& why);
  Outcome conclude_clearing();
  Result<bool> wait_for_storage(SinceStop since_stop);
  bool is_rank0() const { return workload_.rank == 0; }

  const Workload& workload_;
  TrainingState& state_;
  Communicator& comm_;
  Turn turn_ = Turn::kIdle;
  bool pending_ = false;        // a save became due while another was under way
  HostStaging copy_;            // of what this rank writes, as the arena keeps it; empty = held
  std::vector<float> widened_;  // of that, what is bf16 there
  Manifest manifest_;           // of the save under way
  std::vector<WrittenPart> written_;  // of each kind in that save
  uint64_t begun_step_ = 0;
  Clock::time_point begun_at_;
  ShardProgress progress_;         // of this rank's part of it
  uint64_t part_bytes_ = 0;        // of that part, when it is written
  std::atomic<double> part_s_{0};  // how long that took; 0 = it is not durable yet
  double usual_part_s_ = 0;        // likewise, of the last checkpoint; 0 = there was none
  bool gives_up_ = false;          // the save under way, for the newest step
  bool is_finishing_ = false;      // no step is left to train
  uint64_t committed_step_ = 0;
  uint64_t doubtful_step_ = 0;  // the commit of this step failed; 0 = of none
  uint64_t failed_saves_ = 0;
  uint64_t failed_in_a_row_ = 0;
  uint64_t out_of_space_ = 0;
  std::optional<Clock::time_point> failing_since_;  // no attempt has succeeded since
  std::string failure_;                             // the last one's; "" = it was given up
  std::chrono::seconds pause_{0};                   // before the one after the next
  Clock::time_point next_attempt_;
  std::thread thread_;
  std::atomic<bool> aborted_{false};
  std::atomic<bool> given_up_{false};  // the shard under way; all of them after abort()
  std::mutex mutex_;  // of thread_done_, where it is waited for, of idle_, and of given_up_
  std::condition_variable changed_;
  std::function<void()> idle_;  // called when the thread has ended its work; null = nobody waits
  std::atomic<bool> thread_done_{false};
  std::optional<Result<std::string>> outcome_;  // of the thread's work; valid when thread_done_
};

}  // namespace hpctl
