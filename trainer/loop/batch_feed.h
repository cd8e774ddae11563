// SPDX-License-Identifier: Apache-2.0
// The micro-batches of a rank, step after step, so that no step waits for the disk: while one step
// computes, a thread of the feed reads the next expected one. An unexpected step (after a skip, a
// rollback, a new membership) is read when it is requested, and the batches that were read ahead
// are dropped. The thread also puts the batches where a GPU copies them from, so the step loop only
// has to begin the copies. Each evaluated part has a separate feed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/sample_reader.h"
#include "trainer/data/step_samples.h"
#include "trainer/loop/batch_reader.h"

namespace hpctl {

// The samples that a rank reads for a step.
struct BatchOrder {
  std::vector<SampleRange> samples;  // the rank's part
  int64_t micro = 1;                 // samples of a micro-batch
  uint64_t count = 0;                // micro-batches, of which the last may lack samples

  bool operator==(const BatchOrder&) const = default;
};

class BatchFeed {
 public:
  // Makes of a tensor one with the same numbers where a device copies from; c10::Error: no memory.
  using Staging = at::Tensor(const at::Tensor& tensor);

  // `reader` outlives the feed, which is its only user. `staging`: null if the computation uses
  // batches as they are read.
  explicit BatchFeed(SampleReader& reader, Staging* staging = nullptr);
  ~BatchFeed();  // waits for a read under way
  BatchFeed(const BatchFeed&) = delete;
  BatchFeed& operator=(const BatchFeed&) = delete;

  // Errors of reading ahead come here, too, where the order is that one. One thread at a time, as
  // for read_ahead().
  Result<std::vector<MicroBatch>> take(const BatchOrder& order);
  // At most one order at a time: a former one that was not taken is dropped.
  void read_ahead(const BatchOrder& order);

 private:
  using Batches = Result<std::vector<MicroBatch>>;

  Batches read(const BatchOrder& order);
  Outcome stage(std::vector<MicroBatch>& batches) const;
  void serve();  // the thread

  SampleReader& reader_;
  Staging* staging_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<BatchOrder> ahead_;  // asked for and not taken
  std::optional<Batches> ready_;     // of ahead_
  bool reading_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace hpctl
