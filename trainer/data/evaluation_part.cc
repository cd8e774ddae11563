// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/evaluation_part.h"

#include <algorithm>
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
  return std::optional(EvaluationPart{std::move(reader), sequences});
}

uint64_t evaluation_rounds(const EvaluationPart& part, uint64_t micro, int32_t count) {
  const uint64_t a_round = micro * static_cast<uint64_t>(count);
  return (part.sequences + a_round - 1) / a_round;
}

std::optional<SampleRange> evaluated_in(const EvaluationPart& part, uint64_t micro, uint64_t round,
                                        int32_t index, int32_t count) {
  HP_CHECK(index >= 0 && index < count);
  const uint64_t first =
      (round * static_cast<uint64_t>(count) + static_cast<uint64_t>(index)) * micro;
  if (first >= part.sequences) return std::nullopt;
  return SampleRange{first, std::min(first + micro, part.sequences)};
}

}  // namespace hpctl
