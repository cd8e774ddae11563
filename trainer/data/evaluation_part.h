// SPDX-License-Identifier: Apache-2.0
// The parts of the data that a job evaluates, and how much of them: the validation part if
// validation.every_steps is given, the test part if data.split has one.
#pragma once

#include <cstdint>
#include <optional>

#include "common/job/train_spec.h"
#include "trainer/data/sample_reader.h"
#include "trainer/data/step_samples.h"

namespace hpctl {

struct EvaluationPart {
  SampleReader reader;
  uint64_t sequences = 0;  // the first so many are evaluated, above 0
};

// nullopt: the job asks for no evaluation of `part` (validation or test). `trained` is the reader
// of the train part. Errors as SampleReader::open.
Result<std::optional<EvaluationPart>> open_evaluation_part(const TrainSpec& train,
                                                           const SampleReader& trained,
                                                           DataPart part);

// The part goes through in rounds, in each of which reader `index` of `count` (step_samples.h) has
// one micro-batch at most.
uint64_t evaluation_rounds(const EvaluationPart& part, uint64_t micro, int32_t count);
// The sequences of that micro-batch, of which the part's last has fewer where they do not share
// out; nullopt: there is none left for this reader.
std::optional<SampleRange> evaluated_in(const EvaluationPart& part, uint64_t micro, uint64_t round,
                                        int32_t index, int32_t count);

}  // namespace hpctl
