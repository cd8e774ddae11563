// SPDX-License-Identifier: Apache-2.0
// The figures of each step, for programs: metrics.jsonl (docs/formats.md), one JSON object per
// completed step, appended by rank 0 with a single write, so readers never see half a line of a
// running job; and the same as TensorBoard events. A thread writes them, because otherwise all
// ranks would wait for a rank 0 that waits for a file server. After a recovery the steps since the
// last checkpoint appear again under the new generation: a reader keeps the last line of a step.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/base/fd.h"
#include "common/job/step_figures.h"
#include "trainer/metrics/event_file.h"
#include "trainer/plan/flops.h"

namespace hpctl {

struct StepMetrics {
  uint64_t step = 0;
  uint64_t generation = 0;
  double loss = 0;       // mean cross entropy over the step's tokens, nats
  double grad_norm = 0;  // before clipping
  double lr = 0;
  uint64_t tokens = 0;       // of the step, all workers
  uint64_t loss_tokens = 0;  // those that the loss counts
  double step_s = 0;
  // Of this rank.
  double compute_s = 0;           // forward and backward, without waiting for collectives
  double comm_s = 0;              // waiting for collectives
  double comm_under_way_s = 0;    // at least one collective was begun and not yet waited for
  double data_s = 0;              // waiting for samples
  double save_s = 0;              // for checkpoints at the boundary before the step
  double data_waits_s = 0;        // data_s of all steps of the generation so far
  double save_waits_s = 0;        // likewise
  int64_t peak_memory_bytes = 0;  // since its start
  uint64_t loss_scale = 0;        // fp16, of the next step; 0 = another precision
  uint64_t overflows = 0;         // fp16, steps left out so far
  uint64_t failed_saves = 0;      // checkpoints that storage did not take
  uint64_t snapshot_step = 0;     // newest that is in the memory of two nodes; 0 = none
};

// For sequences that are not trained on.
struct EvaluationMetrics {
  std::string part;  // validation | test
  uint64_t step = 0;
  uint64_t generation = 0;
  double loss = 0;  // mean cross entropy over the tokens, nats
  uint64_t sequences = 0;
};

// The factors that turn times into rates.
struct Throughput {
  FlopsPerToken flops;
  int32_t world_size = 1;
  double peak_flops = 0;  // of one device; 0 = unknown: no MFU

  double tokens_per_s(const StepMetrics& m) const;   // of the job
  double tflops(const StepMetrics& m) const;         // per worker, attention counted whole
  double tflops_causal(const StepMetrics& m) const;  // per worker, its causal half
  double mfu_percent(double tflops) const { return tflops * 1e14 / peak_flops; }
};

// For the progress page.
StepFigures figures_of(const StepMetrics& metrics, const Throughput& throughput);

// "step 20 loss 2.1034 grad_norm 0.812 ...": the line of the log.
std::string console_line(const StepMetrics& metrics, const Throughput& throughput);

// One thread.
class MetricsWriter {
 public:
  static constexpr size_t kMostWaitingBytes = size_t{16} << 20;

  // "" as a path writes nothing. Metrics never stop a job: a file that cannot be opened or written
  // is reported once in the log and given up. Behind a file server that does not answer, up to
  // kMostWaitingBytes wait; more are dropped, and the log says how many.
  MetricsWriter(std::string path, const Throughput& throughput);
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;
  // Waits until all is written.
  ~MetricsWriter();
  // TensorBoard events in `directory`, from `first_step` on.
  void open_events(const std::string& directory, uint64_t first_step);

  // These do not wait for the disk.
  void append(const StepMetrics& metrics);
  // After the line of the step.
  void append_evaluation(const EvaluationMetrics& metrics);

  // Waits until all that was appended is written, for at most `limit`. For a process that ends
  // without the destructor.
  void await_written(std::chrono::milliseconds limit);

 private:
  enum class To { kLines, kEvents };
  struct Waiting {
    To to = To::kLines;
    std::string bytes;
  };

  void append_line(const StepMetrics& metrics);
  void append_events(const StepMetrics& metrics);
  void append_scalars(uint64_t step, const Scalars& scalars);
  void put(To to, std::string bytes);
  void run();
  void write(const Waiting& waiting);

  const std::string path_;
  const Throughput throughput_;
  std::atomic<bool> has_lines_ = false;
  std::atomic<bool> has_events_ = false;
  UniqueFd fd_;                      // of the thread, once it runs
  std::optional<EventFile> events_;  // likewise

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable written_;
  std::deque<Waiting> waiting_;
  size_t waiting_bytes_ = 0;
  uint64_t dropped_bytes_ = 0;
  bool is_over_ = false;
  std::thread thread_;  // from the first put() on
};

}  // namespace hpctl
