// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/validation.h"

#include <algorithm>
#include <array>
#include <utility>

namespace hpctl {

Validation::Validation(const TrainSpec& train, EvaluationPart part)
    : train_(&train), source_(std::make_unique<Source>(std::move(part))) {}

Result<std::optional<Validation>> Validation::open(const TrainSpec& train,
                                                   const SampleReader& trained, DataPart part) {
  HP_TRY_ASSIGN(std::optional<EvaluationPart> found, open_evaluation_part(train, trained, part));
  if (!found) return std::optional<Validation>();
  return std::optional(Validation(train, std::move(*found)));
}

bool Validation::due(uint64_t step) const {
  const auto every = static_cast<uint64_t>(train_->validation.every_steps);
  return step % every == 0 || step == static_cast<uint64_t>(train_->steps);
}

uint64_t Validation::rounds(const DataRank& rank) const {
  return evaluation_rounds(source_->part, static_cast<uint64_t>(train_->batch.micro), rank.count);
}

std::optional<SampleRange> Validation::turn_of(uint64_t round, const DataRank& rank) const {
  return evaluated_in(source_->part, static_cast<uint64_t>(train_->batch.micro), round, rank.index,
                      rank.count);
}

BatchOrder Validation::order_of(uint64_t round, const DataRank& rank) const {
  const auto micro = static_cast<uint64_t>(train_->batch.micro);
  const SampleRange first{0, std::min(micro, source_->part.sequences)};
  return {
      .samples = {turn_of(round, rank).value_or(first)}, .micro = train_->batch.micro, .count = 1};
}

Result<MicroBatch> Validation::take(uint64_t round, const DataRank& rank) {
  auto batches = source_->feed.take(order_of(round, rank));
  source_->feed.read_ahead(order_of((round + 1) % rounds(rank), rank));
  if (!batches.ok()) return batches.error();
  return std::move(batches->front());
}

Result<std::optional<ValidationResult>> Validation::run(FullySharded& engine, WeightShards shards,
                                                        const DataRank& rank, Communicator& comm,
                                                        StorageWait& storage,
                                                        bool (*is_stopped)()) {
  const uint64_t rounds_per_look = engine.computes_on_host() ? 1 : kRoundsPerLook;
  engine.begin_evaluation(std::move(shards));
  double counted = 0;
  for (uint64_t round = 0; round < rounds(rank); ++round) {
    const auto batch = storage.until_done([&] { return take(round, rank); });
    const bool looks = round % rounds_per_look == 0;
    // A stop has ended the wait for storage.
    const bool gives_up = looks && !batch.ok() && is_stopped();
    if (!batch.ok() && !gives_up) return batch.error();
    if (looks) {
      std::array<double, 1> stops = {is_stopped() ? 1.0 : 0.0};
      HP_TRY(comm.all_reduce(stops));
      if (stops[0] > 0) {
        HP_TRY(engine.finish_evaluation());
        return std::optional<ValidationResult>();
      }
    }
    const bool counts = turn_of(round, rank) && rank.shares_loss;
    HP_TRY(engine.evaluate(batch->tokens, batch->targets, batch->documents, counts));
    if (counts) counted += static_cast<double>(batch->counted);
  }
  HP_TRY_ASSIGN(const double loss_sum, engine.finish_evaluation());
  std::array<double, 2> sums = {loss_sum, counted};
  HP_TRY(comm.all_reduce(sums));
  return std::optional(ValidationResult{sums[0] / std::max(1.0, sums[1]), source_->part.sequences});
}

}  // namespace hpctl
