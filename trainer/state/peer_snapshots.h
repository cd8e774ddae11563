// SPDX-License-Identifier: Apache-2.0
// Copies of this rank's part of the state in the memory of another node, and the copies that this
// rank keeps for another (recovery.snapshot, common/job/snapshot_peers.h; decision 1510).
//
// A thread of ours sends a copy from its slot while training goes on. One state is complete at
// every moment, whichever node dies:
//
//   own slots   [newest, step k]  [under way, step S]  [everywhere, step E]  [a save's, step H]
//   copies                        [being received, S]  [complete, E]             E < S <= k, H <= k
//
// Step S replaces E once every rank has received its copy of it, which a step's small all-reduce
// tells all ranks at once (SnapshotNews). Neither this nor a save (saver.h) copies within the node:
// both read slots that apply() does not write. A save and a copy of one step share its slot, which
// is free when both are done with it. Pieces have checksums; a damaged copy is given up everywhere,
// and a newer one is sent.
//
// A step waits for the copy in flight if apply() would have no slot: all four are different,
// because S was not everywhere when a save of a later step began. With `every_steps` it also waits
// if the next copy is already due after the first one, so that a lost node costs no more than the
// key promises. With `auto` no copy begins while a save holds an older step.
//
// A GPU's state is sent from its copies in host memory (host_copies.h), so the newest of these is
// what a copy for a peer begins with: mostly that of the step before.
//
// Threads: all calls except abort() come from the step loop's.
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
#include "common/worker/workload.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/training_state.h"

namespace hpctl {

// The report of each rank, and, summed, the knowledge of all. At most one copy is in flight.
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

  // With Workload::refilled, before start(): the refilled ranks of this group get their parts from
  // the ranks that keep the copies.
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
