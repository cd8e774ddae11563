// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/validation.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "trainer/loop/batch_reader.h"

namespace hpctl {

Validation::Validation(const TrainSpec& train, EvaluationPart part)
    : train_(&train), part_(std::move(part)) {}

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

Result<ValidationResult> Validation::run(FullySharded& engine, WeightShards shards,
                                         const DataRank& rank, Communicator& comm) {
  const auto micro = static_cast<uint64_t>(train_->batch.micro);
  const uint64_t rounds = evaluation_rounds(part_, micro, rank.count);
  engine.begin_evaluation(std::move(shards));
  double counted = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    const auto first = evaluated_from(part_, micro, round, rank.index, rank.count);
    std::vector<uint64_t> samples(micro);
    std::iota(samples.begin(), samples.end(), first.value_or(0));
    HP_TRY_ASSIGN(const std::vector<MicroBatch> batches,
                  read_micro_batches(part_.reader, samples, train_->batch.micro, 1));
    const bool counts = first && rank.counts;
    HP_TRY(engine.evaluate(batches[0].tokens, batches[0].targets, batches[0].documents, counts));
    if (counts) counted += static_cast<double>(batches[0].counted);
  }
  HP_TRY_ASSIGN(const double loss_sum, engine.finish_evaluation());
  std::array<double, 2> sums = {loss_sum, counted};
  HP_TRY(comm.all_reduce(sums));
  return ValidationResult{sums[0] / std::max(1.0, sums[1]), part_.sequences};
}

}  // namespace hpctl
