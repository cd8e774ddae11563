// SPDX-License-Identifier: Apache-2.0
// The objects of a worker process that live as long as it does, through all its generations:
// device, data, model, training state in its arena, metrics. Objects that depend on the peers, and
// must be made again after an abort, belong to a Generation; there is one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/layout/mesh.h"
#include "common/worker/workload.h"
#include "trainer/arch/model.h"
#include "trainer/data/sample_reader.h"
#include "trainer/loop/batch_feed.h"
#include "trainer/loop/validation.h"
#include "trainer/metrics/metrics_writer.h"
#include "trainer/parallel/fsdp.h"
#include "trainer/process/progress.h"
#include "trainer/state/frozen_weights.h"
#include "trainer/state/training_state.h"

namespace hpctl {

class Run {
 public:
  // For the job of `workload`; rank and generation come from the first Generation. `progress` and
  // `device` outlive it; `arena_fd` as in TrainingState::create.
  Run(const Workload& workload, Progress& progress, int arena_fd, Device& device);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // A generation begins. One that does not start from memory gives up what is there: it is of a
  // history that ends. kInvalidArgument when the workload is not of this job.
  Outcome begin_generation(const Workload& workload);
  // Opens the job's data; once. A read error may be transient.
  Outcome open_data(const Workload& workload);
  // The forward pass, once. kInvalidArgument: it cannot be had as workload.train.gpu wants it.
  Outcome load_model();
  // Whether a GPU's state is to be copied to memory that outlives the process, and this machine has
  // room for all workers' copies. kFailedPrecondition tells the log why not.
  Outcome can_copy_state(const Workload& workload) const;
  // The state that this generation starts from. With Workload::from_memory it is a sealed one of
  // this process, if it has one, else TrainingState::create makes one. If the state is resharded,
  // collective over `world`, whose buffers are in host memory. `copies`: of a GPU's state, the
  // same on all ranks.
  Outcome load_state(const Workload& workload, const Environment& environment, Communicator& world,
                     bool copies);
  // The frozen parameters: with workload.train.lora the part of the model that the rank has under
  // `mesh`; once for each part. The checksum of the whole is frozen_checksum().
  Outcome load_frozen(const Workload& workload, const Mesh& mesh);
  // From the next step of the state on, as this generation's rank 0 or as a rank that writes none.
  void open_metrics(const Workload& workload);

  const TrainSpec& train() const { return train_; }
  Progress& progress() { return progress_; }
  Device& device() { return device_; }
  BatchFeed& feed() { return *feed_; }
  const std::string& data_fingerprint() const { return data_->fingerprint; }
  Validation* validation() { return validation_ ? &*validation_ : nullptr; }
  Validation* test() { return test_ ? &*test_ : nullptr; }
  bool has_state() const { return state_.has_value(); }
  TrainingState& state() { return *state_; }
  const Model& model() const { return *model_; }
  // Null where the model itself is trained.
  const FrozenModel* frozen() const { return frozen_ ? &frozen_model_ : nullptr; }
  const std::string& frozen_checksum() const { return frozen_->checksum(); }
  // The blocks of the model, whatever part of it is trained.
  const std::vector<Block>& model_blocks() const {
    return frozen_ ? frozen_model_.blocks : state_->blocks();
  }
  MetricsWriter& metrics() { return *metrics_; }
  void await_metrics(std::chrono::milliseconds limit) {
    if (metrics_) metrics_->await_written(limit);
  }
  const Throughput& throughput() const { return throughput_; }
  // A checkpoint of that step, in whatever generation.
  void save_begins(uint64_t step) {
    save_began_ = std::chrono::steady_clock::now();
    save_began_at_ = step;
  }
  // The newest; before the first one: when this process began.
  std::chrono::steady_clock::time_point save_began() const { return save_began_; }
  uint64_t save_began_at() const { return save_began_at_; }

  // Where the time from start to first step goes, for people and the recovery benchmark.
  void log_phase(const char* what) const;

 private:
  Outcome read_data();

  const std::string identity_;  // what all generations' workloads have in common
  const TrainSpec train_;
  Progress& progress_;
  int arena_fd_;
  Device& device_;
  std::optional<SampleReader> reader_;
  std::optional<DataIdentity> data_;
  std::optional<BatchFeed> feed_;
  std::optional<Validation> validation_;
  std::optional<Validation> test_;
  std::unique_ptr<Model> model_;
  std::optional<FrozenWeights> frozen_;
  FrozenModel frozen_model_;
  std::optional<TrainingState> state_;
  Throughput throughput_;
  std::optional<MetricsWriter> metrics_;
  std::chrono::steady_clock::time_point save_began_ = std::chrono::steady_clock::now();
  uint64_t save_began_at_ = 0;
};

// The type in which parameters are gathered and used.
at::ScalarType compute_type(const TrainSpec& train);

// The job's directory, where metrics.jsonl lies.
std::string job_directory(const Workload& workload);

}  // namespace hpctl
