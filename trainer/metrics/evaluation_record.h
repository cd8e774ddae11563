// SPDX-License-Identifier: Apache-2.0
// Which evaluations metrics.jsonl has. A generation that begins at a step where one was due asks
// whether the former generation came to it.
#pragma once

#include <cstdint>
#include <string>

namespace hpctl {

// At most so much of the file's end is read.
inline constexpr uint64_t kEvaluationTail = uint64_t{4} << 20;

// Whether the file has an evaluation of `part` ("validation" or "test") at `step`, behind the last
// line of an earlier step: a line before that is about a history that was given up. False if the
// file cannot be read, or has that line further back: to evaluate once more does no harm.
bool has_evaluation(const std::string& path, const std::string& part, uint64_t step);

}  // namespace hpctl
