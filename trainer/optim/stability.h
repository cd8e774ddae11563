// SPDX-License-Identifier: Apache-2.0
// Is a step fit to be applied? A function of all-reduced numbers and of the run's durable record,
// so all ranks judge alike, and a run that is repeated from a checkpoint judges as it did before.
//
// Never fit: a loss or gradient norm that is not finite. With `spikes`, neither is one that lies
// far above the last `window` accepted steps (once there are kFewestSteps of them):
//
//   (x - median) / max(1.4826 * MAD, 0.01 * median) > z_score     or     x > factor * median
//
// MAD is the median absolute deviation, 1.4826 of which estimate the standard deviation of a normal
// distribution; its floor keeps the noise of a nearly constant curve from counting as an outlier.
#pragma once

#include <string>

#include "common/job/bad_step.h"
#include "common/job/train_spec.h"
#include "trainer/optim/records.h"

namespace hpctl {

inline constexpr size_t kFewestSteps = 16;

struct StabilityProblem {
  BadStepFinding finding = BadStepFinding::kNotFinite;
  std::string reason;  // what is wrong, for one line of text; "" = fit
};

StabilityProblem stability_problem(const StabilitySpec& spec, const StabilityRecord& record,
                                   double loss, double grad_norm);

// After the step was applied.
void remember_step(const StabilitySpec& spec, StabilityRecord& record, double loss,
                   double grad_norm);

}  // namespace hpctl
