// SPDX-License-Identifier: Apache-2.0
// Checkpoints of one rank: written by a thread of their own from a copy of the sealed state, while
// training goes on. At most one save is under way.
//
// The ranks never wait for each other's disks. Each step's all-reduce carries what a rank has to
// report (SaveNews), so all ranks see the same news at the same step boundary and take the same
// turn there:
//
//   idle --begin()--> writing    every rank's thread writes its shard
//   writing, every rank reported written or failed:
//        all written: receipts are exchanged, rank 0's thread commits the manifest --> committing
//        any failed:  the reason is exchanged, rank 0 removes the partial save, all ranks stop
//   committing, rank 0 reported: --> idle, the checkpoint exists; or all ranks stop with the reason
//
// A save that becomes due while another is under way begins when that one is done.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/result.h"
#include "common/base/workload.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/shard_writer.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/training_state.h"

namespace hpctl {

// Counts over ranks: summed in the step's all-reduce.
struct SaveNews {
  double finished = 0;  // ranks whose background work of this turn is done, well or not
  double failed = 0;    // of these, with an error
};

// Makes the checkpoint directory, and asks whether it can be written: better before the first step
// than after hours of them. kFailedPrecondition with the remedy.
Outcome prepare_checkpoint_directory(const std::string& checkpoint_dir);

class Saver {
 public:
  // All outlive it.
  Saver(const Workload& workload, TrainingState& state, Communicator& comm);
  // Waits for the thread: bounded by the disk.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // This rank's news for the all-reduce of a step.
  SaveNews news() const;

  // At the step boundary, after the state moved on; `sum` = the all-reduced news and `due` = a save
  // of the state is wanted now (the same on all ranks). A collective when a turn is taken. Errors:
  // the failure of any rank's save, on every rank; kPeerLost.
  Outcome at_boundary(const SaveNews& sum, bool due);

  // Ends with a durable checkpoint of the present state, after finishing what is under way.
  Outcome finish();

  // Finishes what is under way; nothing of it stays pending. A collective.
  Outcome settle();
  // After going back to `step`: what this process saved behind it does not exist any more.
  void forget_after(uint64_t step);

  // Step of the newest checkpoint this process saw committed; 0 = none.
  uint64_t committed_step() const { return committed_step_; }

 private:
  enum class Turn { kIdle, kWriting, kCommitting };

  void begin();
  void give_values(const std::byte* copy, std::vector<ShardPart>& parts);
  void run(std::function<Result<std::string>()> work);
  Outcome take_turn(const SaveNews& sum);
  Outcome exchange_receipts();
  Outcome wait_for_turn();
  Outcome conclude_commit();
  bool is_rank0() const { return workload_.rank == 0; }

  const Workload& workload_;
  TrainingState& state_;
  Communicator& comm_;
  Turn turn_ = Turn::kIdle;
  bool pending_ = false;        // a save became due while another was under way
  HostStaging copy_;            // of what this rank writes, as the arena keeps it
  std::vector<float> widened_;  // of that, what is bf16 there
  Manifest manifest_;           // of the save under way
  uint64_t begun_step_ = 0;
  uint64_t committed_step_ = 0;
  std::thread thread_;
  std::atomic<bool> thread_done_{false};
  std::optional<Result<std::string>> outcome_;  // of the thread's work; valid when thread_done_
};

}  // namespace hpctl
