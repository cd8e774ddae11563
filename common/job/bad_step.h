// SPDX-License-Identifier: Apache-2.0
// A training step that was not applied because its loss or gradient norm was bad, and the reaction
// of the job's stability policy, in the words of the worker. Rank 0 reports for all ranks, which
// decided alike, and the agent carries the report to the controller. Numbers are stored and sent;
// never renumber.
#pragma once

#include <cstdint>
#include <string>

namespace hpctl {

enum class BadStepFinding : uint32_t { kNotFinite = 1, kLossSpike = 2, kGradientSpike = 3 };

// The result of executing the step once more.
enum class BadStepVerdict : uint32_t {
  kNotRepeated = 0,
  kSameResult = 1,   // the data or the software
  kOtherResult = 2,  // a machine computed wrongly at least once
};

enum class BadStepOutcome : uint32_t {
  kSkipped = 1,     // the step's samples are left out for good
  kRolledBack = 2,  // that, after going back to an earlier state
  kStopped = 3,     // the workers end: stability.policy stop, or OtherResult
  kGaveUp = 4,      // they end, because stability.max_skips is reached
};

struct BadStep {
  uint64_t number = 0;  // 1, 2, ... in the life of the worker
  uint64_t step = 0;
  uint64_t resumed_step = 0;  // the last applied step from which training goes on
  uint64_t samples = 0;       // left out for good
  BadStepFinding finding = BadStepFinding::kNotFinite;
  BadStepVerdict verdict = BadStepVerdict::kNotRepeated;
  BadStepOutcome outcome = BadStepOutcome::kStopped;
  int32_t blamed_rank = -1;  // of kOtherResult; -1 = not known which
  std::string reason;        // one line
};

}  // namespace hpctl
