// SPDX-License-Identifier: Apache-2.0
// One worker's whole life: read data, meet the peers, load the state, then step after step until
// the job's last one is durable. train_loop.cc is meant to be read from top to bottom.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/workload.h"
#include "trainer/arch/model.h"
#include "trainer/comm/mesh_communicators.h"
#include "trainer/data/ledger.h"
#include "trainer/data/sample_reader.h"
#include "trainer/loop/validation.h"
#include "trainer/metrics/metrics_writer.h"
#include "trainer/metrics/step_times.h"
#include "trainer/metrics/trace.h"
#include "trainer/optim/stability.h"
#include "trainer/parallel/fsdp.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/process/progress.h"
#include "trainer/state/saver.h"
#include "trainer/state/training_state.h"

namespace hpctl {

class TrainLoop {
 public:
  // `workload`, `progress` and `device` outlive it; `arena_fd` as in TrainingState::create.
  TrainLoop(const Workload& workload, Progress& progress, int arena_fd, Device& device);

  // Everything before the first step. kDataLoss: the checkpoint of the workload is damaged.
  Outcome start();
  // All steps, the final checkpoint, and the evaluation of the test part; or, once any rank was
  // asked to stop, the step under way and a checkpoint of it.
  Outcome run();
  // run() has ended before the last step because of a request.
  bool is_stopped() const { return stopping_; }
  // Of the newest checkpoint that this process saw committed: the step that run() has ended with,
  // unless the disk was full.
  uint64_t durable_step() const { return saver_->committed_step(); }

 private:
  // What all ranks know after the one small all-reduce of a step.
  struct StepSums {
    double loss = 0;         // mean cross entropy over the step's tokens that are counted
    double grad_norm = 0;    // global, before clipping
    double loss_scale = 1;   // that the engine's gradients are multiplied by
    bool clock_due = false;  // a checkpoint, by rank 0's clock
    bool stop = false;       // some rank was asked to
    SaveNews news;
  };

  PlanSetting plan_setting() const;
  Outcome check_memory() const;
  Outcome load_data();
  Outcome meet_peers();
  Outcome agree_on_data();
  Result<Environment> environment_here();
  Outcome load_state();
  Outcome step();
  Result<StepSums> compute_gradients(const StepSamples& samples);
  Result<StepSums> reduce(double loss_sum, int64_t counted);
  double loss_factor();  // of the next step: the loss scale of fp16, otherwise 1
  // train_loop_stability.cc
  Outcome leave_out(const StepSamples& samples, const StabilityProblem& problem);
  Outcome leave_out_overflow(const StepSamples& samples, uint64_t scale);
  Outcome reexecute(const StepSamples& samples, const std::string& what, BadStep& bad_step);
  Outcome go_back();
  void tell(const BadStep& bad_step);
  void update(const StepSums& sums, const StepSamples& samples, double lr);
  void note_offload() const;
  void open_metrics();
  void report(const StepSums& sums, double lr);
  StepMetrics measure(const StepSums& sums, double lr) const;
  Outcome test();
  Outcome evaluate(Validation& part, const char* name);
  bool save_due(const StepSums& sums) const;

  uint64_t next_step() const { return state_->step() + 1; }
  void log_phase(const char* what);

  const Workload& workload_;
  Progress& progress_;
  int arena_fd_;
  Device& device_;
  std::optional<SampleReader> reader_;
  std::optional<Validation> validation_;
  std::optional<Validation> test_;
  Sharding sharding_;
  std::optional<MeshCommunicators> comms_;
  std::optional<TrainingState> state_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<FullySharded> engine_;
  std::unique_ptr<Saver> saver_;
  std::optional<LedgerWriter> ledger_;
  Trace trace_;
  StepTimes times_{trace_};
  ScheduleTrace schedule_;  // of the step under way, while trace_ is active
  Throughput throughput_;
  std::optional<MetricsWriter> metrics_;
  std::vector<SampleRange> my_samples_;  // of the step under way
  std::array<double, 2> own_sums_{};     // this rank's loss and gradient squares in that step
  uint64_t step_tokens_ = 0;             // of the whole job in that step
  bool stopping_ = false;
  std::chrono::steady_clock::time_point last_save_began_;
  std::chrono::steady_clock::time_point last_log_{};
};

}  // namespace hpctl
