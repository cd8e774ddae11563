// SPDX-License-Identifier: Apache-2.0
// The text of a job that names a tokenizer, and pairs and conversations, become prepared datasets
// before the job is submitted: workers read tokens only
// (docs/decisions/1204-tokenised-at-submit.md).
#pragma once

#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "common/job/paths.h"
#include "hpctl/terminal.h"

namespace hpctl {

// Text of at most so many bytes, as its files lie there, is prepared without being asked.
inline constexpr uint64_t kMaxPreparedAtSubmit = 64U << 20;

// Replaces every text path of the job's data by the prefix of a dataset below $HPCTL_HOME/data, and
// removes unused datasets (prepared_data.h). Progress, and how pairs and conversations fill the
// sequences, go to `terminal.err`. Errors: too much text (and the command to run instead), a
// tokenizer that is missing, unknown or larger than the model's vocabulary, data prepared with
// another tokenizer than the job's.
Outcome prepare_text(JobSpec& spec, const HomePaths& paths, const Terminal& terminal);

}  // namespace hpctl
