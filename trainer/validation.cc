// SPDX-License-Identifier: Apache-2.0
#include "trainer/validation.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "trainer/batch_reader.h"

namespace hpctl {

Validation::Validation(const Workload& workload, SampleReader reader)
    : workload_(&workload), reader_(std::move(reader)) {
  const auto wanted = static_cast<uint64_t>(workload.train.validation.sequences);
  const uint64_t sequences = wanted == 0 ? reader_.windows() : std::min(wanted, reader_.windows());
  micro_batches_ = sequences / static_cast<uint64_t>(workload.train.batch.micro);
}

Result<std::optional<Validation>> Validation::open(const Workload& workload) {
  const TrainSpec& train = workload.train;
  if (train.validation.every_steps == 0) return std::optional<Validation>();
  HP_TRY_ASSIGN(SampleReader reader, SampleReader::open(train.data, train.seed, train.model.vocab,
                                                        DataPart::kValidation));
  Validation validation(workload, std::move(reader));
  if (validation.micro_batches_ == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "the validation part has fewer sequences than batch.micro (" +
                     std::to_string(train.batch.micro) +
                     "); give it more of data.split, or raise validation.sequences"};
  }
  return std::optional(std::move(validation));
}

bool Validation::due(uint64_t step) const {
  const auto every = static_cast<uint64_t>(workload_->train.validation.every_steps);
  return step % every == 0 || step == static_cast<uint64_t>(workload_->train.steps);
}

Result<ValidationResult> Validation::run(FullySharded& engine, std::vector<const float*> shards,
                                         Communicator& comm) {
  const auto micro = static_cast<uint64_t>(workload_->train.batch.micro);
  const auto world = static_cast<uint64_t>(workload_->world_size);
  const uint64_t rounds = (micro_batches_ + world - 1) / world;
  engine.begin_evaluation(std::move(shards));
  double loss_sum = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    const uint64_t own = round * world + static_cast<uint64_t>(workload_->rank);
    const bool counts = own < micro_batches_;
    std::vector<uint64_t> samples(micro);
    std::iota(samples.begin(), samples.end(), counts ? own * micro : 0);
    HP_TRY_ASSIGN(const std::vector<MicroBatch> batches,
                  read_micro_batches(reader_, samples, workload_->train.batch.micro));
    HP_TRY_ASSIGN(const double loss,
                  engine.evaluate(batches[0].tokens, batches[0].targets, batches[0].documents));
    if (counts) loss_sum += loss;
  }
  std::array<double, 1> sums = {loss_sum};
  HP_TRY(comm.all_reduce(sums));
  const uint64_t sequences = micro_batches_ * micro;
  const auto tokens = static_cast<double>(sequences * static_cast<uint64_t>(reader_.seq_len()));
  return ValidationResult{sums[0] / tokens, sequences};
}

}  // namespace hpctl
