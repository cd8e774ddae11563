// SPDX-License-Identifier: Apache-2.0
// A worker's part in one generation, one agreed membership. It meets the peers, takes the state
// from a checkpoint or from its own memory, and goes step after step until the job's last one is
// durable (generation.cc, step.cc: to be read from top to bottom) or until abort(). After that
// nothing of it is repaired: communicators, the engine with its schedule, saver and ledger go, and
// the next Generation makes new ones over the same Run.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/layout/sharding.h"
#include "common/worker/workload.h"
#include "trainer/comm/mesh_communicators.h"
#include "trainer/data/ledger.h"
#include "trainer/loop/operation_trace.h"
#include "trainer/loop/run.h"
#include "trainer/loop/storage_wait.h"
#include "trainer/metrics/step_times.h"
#include "trainer/metrics/trace.h"
#include "trainer/optim/stability.h"
#include "trainer/parallel/fsdp.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/state/copy_pace.h"
#include "trainer/state/peer_snapshots.h"
#include "trainer/state/saver.h"

namespace hpctl {

class Generation {
 public:
  // `run` outlives it.
  Generation(Run& run, const Workload& workload);

  // Everything before the first step. kDataLoss: the checkpoint of the workload is damaged.
  Outcome start();
  // All steps, the final checkpoint, and the evaluation of the test part; or, once any rank has a
  // stop request, the end of an evaluation or step under way, and a checkpoint of the last step
  // that is complete.
  Outcome run();
  // start() or run() returns kPeerLost, from the collective that it waits in or at the next step
  // boundary. The connections to the peers stay until this object goes: a rank without an order yet
  // would take this rank for dead. Any thread.
  void abort();
  // After abort(): calls `done` once no thread of a save works any more, from that thread, or at
  // once.
  void when_saved(std::function<void()> done);

  // run() has ended because of a request, with something left to do.
  bool is_stopped() const { return stopping_; }
  // Of the newest checkpoint that this generation saw committed or began with: the step that run()
  // has ended with, unless the disk was full.
  uint64_t durable_step() const;
  const Workload& workload() const { return workload_; }

 private:
  // The values that all ranks know after the one small all-reduce of a step.
  struct StepSums {
    double loss = 0;         // mean cross entropy over the step's tokens that are counted
    uint64_t counted = 0;    // those tokens
    double grad_norm = 0;    // global, before clipping
    double loss_scale = 1;   // that the engine's gradients are multiplied by
    bool clock_due = false;  // a checkpoint, by rank 0's clock
    bool stop = false;       // some rank was asked to
    double seconds = 0;      // of the step, the mean of all ranks
    SaveNews news;
    SnapshotNews snapshots;
  };

  Outcome check_memory() const;
  Outcome meet_peers();
  Outcome agree_on_data();
  Result<Environment> environment_here();
  Outcome check_one_base(const Environment& of_all) const;
  Outcome load_state();
  Outcome look_back();
  Outcome save_last();
  Result<bool> agree_on_copies();
  Result<Communicator*> host_memory_world();
  Outcome refill();
  Outcome make_snapshots();
  Outcome make_saver();
  void keep_files_of_model() const;
  Outcome begin_ledger();
  Outcome complete_ledgers() const;
  bool owes_save() const;
  void note_what_is_for_gpus() const;
  Outcome check_not_aborted() const;
  void tell_saves();
  Outcome test();
  Outcome evaluate(Validation& part, const char* name);
  Result<bool> any_rank_is_stopped();

  // step.cc
  Outcome step();
  StepSamples samples_from(uint64_t cursor) const;  // of a step that begins there
  BatchOrder order_of(const StepSamples& samples) const;
  void read_ahead(uint64_t cursor);
  // What compute_gradients() does when a rank has a stop request.
  enum class OnStop { kGiveUp, kFinish };
  // nullopt on every rank: the step is given up.
  Result<std::optional<StepSums>> compute_gradients(const StepSamples& samples, OnStop on_stop);
  bool looks_before(size_t batch, size_t batches) const;
  Result<StepSums> reduce(FullySharded::Sums own, int64_t counted);
  double loss_factor();  // of the next step: the loss scale of fp16, otherwise 1
  void update(const StepSums& sums, const StepSamples& samples, double lr);
  void report(const StepSums& sums, double lr);
  StepMetrics measure(const StepSums& sums, double lr) const;
  bool save_due(const StepSums& sums) const;
  void copy_state(const StepSums& sums, bool is_saved);

  // stability.cc
  Outcome leave_out(const StepSamples& samples, const StabilityProblem& problem);
  Outcome leave_out_overflow(const StepSamples& samples, uint64_t scale);
  Outcome reexecute(const StepSamples& samples, const std::string& what, BadStep& bad_step);
  Outcome go_back();
  Outcome note_skipped(uint64_t step, const std::vector<SampleRange>& skipped);
  void tell(const BadStep& bad_step);

  TrainingState& state() const { return run_.state(); }
  uint64_t next_step() const { return state().step() + 1; }
  bool is_last_step() const { return state().step() >= static_cast<uint64_t>(run_.train().steps); }

  Run& run_;
  const Workload workload_;
  Progress& progress_;
  Device& device_;
  Sharding sharding_;
  DataRank data_rank_;
  std::atomic<bool> aborted_{false};
  std::mutex abort_mutex_;  // abort() finds what it ends made whole or not at all
  std::optional<MeshCommunicators> comms_;
  std::unique_ptr<Communicator> host_world_;  // all ranks, over host memory; null = not needed
  std::unique_ptr<FullySharded> engine_;
  std::unique_ptr<PeerSnapshots> snapshots_;  // null = there are none
  std::unique_ptr<Saver> saver_;
  CopyPace copy_pace_;        // of a GPU's state
  bool beside_copy_ = false;  // the step under way
  std::optional<LedgerWriter> ledger_;
  StorageWait storage_;  // of what a step reads and writes
  OperationTrace operation_trace_;
  Trace trace_;
  StepTimes times_{trace_};
  ScheduleTrace schedule_;               // of the step under way, while trace_ is active
  std::vector<SampleRange> my_samples_;  // of the step under way
  uint64_t my_counted_ = 0;              // targets of those that the loss counts
  std::array<double, 2> own_sums_{};     // this rank's loss and gradient squares in that step
  uint64_t step_tokens_ = 0;             // of the whole job in that step
  bool stopping_ = false;
  std::optional<double> last_step_s_;  // StepSums::seconds; nullopt: none is complete
  bool owes_save_ = false;             // rank 0's is asked
  std::chrono::steady_clock::time_point last_log_{};
};

}  // namespace hpctl
