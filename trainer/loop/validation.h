// SPDX-License-Identifier: Apache-2.0
// Validation and test: the mean cross entropy of sequences that are not trained on
// (evaluation_part.h).
//
// The sequences are the same every time, for every world size and micro-batch, in an order that
// depends on the seed alone; the part's last micro-batch may have fewer. The ranks of data-parallel
// coordinate m mod D (mesh.h) evaluate micro-batch m, and one of them counts it. Ranks without one
// in the last round evaluate the first again and do not count it, so that all take part in the
// collectives.
//
// A stop ends an evaluation early: in each round the ranks tell each other whether one was asked
// for. On a GPU they do so every kRoundsPerLook rounds, since the host waits for the device there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "common/worker/workload.h"
#include "trainer/comm/communicator.h"
#include "trainer/data/evaluation_part.h"
#include "trainer/loop/batch_feed.h"
#include "trainer/loop/storage_wait.h"
#include "trainer/parallel/fsdp.h"

namespace hpctl {

struct ValidationResult {
  double loss = 0;  // mean over the tokens that are counted, in nats; perplexity is its exponential
  uint64_t sequences = 0;
};

class Validation {
 public:
  // Results and errors as open_evaluation_part(). `train` outlives it.
  static Result<std::optional<Validation>> open(const TrainSpec& train, const SampleReader& trained,
                                                DataPart part);

  // For the validation part; the test part is for the end.
  bool due(uint64_t step) const;
  // All ranks at the same step, between two steps of the engine; `shards` as for begin_step, `comm`
  // the world's. nullopt on every rank: `is_stopped` was true on one of them.
  Result<std::optional<ValidationResult>> run(FullySharded& engine, WeightShards shards,
                                              const DataRank& rank, Communicator& comm,
                                              StorageWait& storage, bool (*is_stopped)());
  static constexpr uint64_t kRoundsPerLook = 16;

  // The micro-batch of a round for this rank. That of the next round, after the last one the first,
  // is read ahead, so that run() waits for the disk the first time only.
  Result<MicroBatch> take(uint64_t round, const DataRank& rank);

 private:
  struct Source {
    explicit Source(EvaluationPart opened) : part(std::move(opened)), feed(part.reader) {}
    EvaluationPart part;
    BatchFeed feed;
  };

  Validation(const TrainSpec& train, EvaluationPart part);

  uint64_t rounds(const DataRank& rank) const;
  BatchOrder order_of(uint64_t round, const DataRank& rank) const;
  std::optional<SampleRange> turn_of(uint64_t round, const DataRank& rank) const;

  const TrainSpec* train_;
  std::unique_ptr<Source> source_;  // at an address of its own: the feed has the reader's
};

}  // namespace hpctl
