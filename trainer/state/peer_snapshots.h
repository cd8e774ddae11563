// SPDX-License-Identifier: Apache-2.0
// Copies of this rank's part of the state in the memory of another node, and those that this rank
// keeps for another (recovery.snapshot, common/base/snapshot_peers.h; decision 1510).
//
// A copy is sent from the slot it lies in, by a thread of ours, while training goes on. So that one
// state is whole at every moment, whichever node dies:
//
//   own slots   [newest, step k]  [under way, step S]  [everywhere, step E]  [a save's, step H]
//   copies                        [being received, S]  [complete, E]             E < S <= k, H <= k
//
// Step S replaces E once every rank has received its copy of it, which a step's small all-reduce
// tells all ranks at once (SnapshotNews). Nothing is copied for it, nor for a save (saver.h): both
// read slots that apply() leaves alone. A save and a copy of one step share its slot, which is free
// when both are done with it. Pieces have checksums; what arrived damaged is given up everywhere,
// and a newer one is sent.
//
// A step waits for the copy under way where apply() would have no slot: all four are different, as
// S was not everywhere when a save of a later step began. With `every_steps` it waits also where
// the next copy is due already, behind the first one: a lost node is to cost what is said there.
// With `auto` no copy begins while a save holds an older step.
//
// Threads: all calls but abort() come from the step loop's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/result.h"
#include "common/base/workload.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/training_state.h"

namespace hpctl {

// What each rank says, and, summed, what all know. At most one copy is under way.
struct SnapshotNews {
  double received = 0;  // this rank has the copy that is under way, and it is intact
  double damaged = 0;   // it was not intact
  double due = 0;       // the next one, by rank 0's clock
};

class PeerSnapshots {
 public:
  // Between the ranks of snapshot_group(), by its order.
  static CommunicatorOptions ring_options(const Workload& workload);

  // Precondition: keeps_copies(state.geometry()). `state` outlives it; `ring` is not connected.
  PeerSnapshots(const Workload& workload, TrainingState& state, std::unique_ptr<Communicator> ring);
  // Ends what is under way.
  ~PeerSnapshots();
  PeerSnapshots(const PeerSnapshots&) = delete;
  PeerSnapshots& operator=(const PeerSnapshots&) = delete;

  // With Workload::refilled, before start(): those of this group get their parts from the ranks
  // that keep the copies.
  Outcome restore();
  // The state is complete: from now on copies are sent.
  void start();

  // Before the small all-reduce of a step: the step's apply() has a slot to write afterwards. Waits
  // where this step must.
  Outcome make_room();
  bool must_wait() const;
  // For that all-reduce. An error of the thread, which is one of the connection.
  Result<SnapshotNews> news();
  // With its sums, before apply().
  void conclude(const SnapshotNews& sums);
  // After apply(), or where there was none.
  void at_boundary(const SnapshotNews& sums);
  // Before the state goes back: nothing is under way any more, and no copy counts.
  Outcome forget();

  // Any thread.
  void abort();

  // Newest step that all ranks have a copy of; 0 = none.
  uint64_t everywhere() const { return everywhere_; }
  // For which steps have waited, in make_room().
  double waited_seconds() const { return waited_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Transfer {
    int from;
    int to;
  };

  Outcome connect();
  int neighbour(int distance) const;
  void run();
  Result<bool> transfer(const Transfer& transfer);
  bool is_refilled_member(int member) const;
  bool is_due() const;

  const Workload& workload_;
  TrainingState& state_;
  const std::vector<int32_t> group_;
  std::unique_ptr<Communicator> ring_;
  bool connected_ = false;
  int copy_ = 0;  // slot of the newest complete copy, or of none
  bool under_way_ = false;
  uint64_t step_under_way_ = 0;
  uint64_t everywhere_ = 0;
  uint64_t begun_step_ = 0;
  Clock::time_point begun_;
  double waited_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Transfer> requested_;     // until it is done
  std::optional<Result<bool>> outcome_;   // of the newest: whether it is intact
  std::chrono::duration<double> took_{};  // the newest
  bool ends_ = false;
  std::thread thread_;  // ends first
};

}  // namespace hpctl
