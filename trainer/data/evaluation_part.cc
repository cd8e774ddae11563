// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/evaluation_part.h"

#include <algorithm>
#include <string>
#include <utility>

namespace hpctl {

Result<std::optional<EvaluationPart>> open_evaluation_part(const TrainSpec& train,
                                                           const SampleReader& trained,
                                                           DataPart part) {
  HP_CHECK(part != DataPart::kTrain);
  const bool test = part == DataPart::kTest;
  const bool asked = test ? train.data.split.at(2) > 0 : train.validation.every_steps > 0;
  if (!asked) return std::optional<EvaluationPart>();
  HP_TRY_ASSIGN(SampleReader reader, trained.open_part(train.data, part));
  const auto wanted = test ? 0 : static_cast<uint64_t>(train.validation.sequences);
  const uint64_t sequences = wanted == 0 ? reader.windows() : std::min(wanted, reader.windows());
  const auto micro = static_cast<uint64_t>(train.batch.micro);
  if (sequences < micro) {
    return Error{
        ErrorCode::kInvalidArgument,
        std::string("the ") + to_string(part) + " part has " + std::to_string(sequences) +
            " of the sequences that a micro-batch takes (batch.micro " + std::to_string(micro) +
            "); " + (test ? "" : "raise validation.sequences, or ") + "give it more of data.split"};
  }
  return std::optional(EvaluationPart{std::move(reader), sequences / micro * micro});
}

}  // namespace hpctl
