// SPDX-License-Identifier: Apache-2.0
// The text of a job that names a tokenizer, and pairs and conversations, become prepared datasets
// before the job is submitted: workers read tokens only
// (docs/decisions/1204-tokenised-at-submit.md).
#pragma once

#include "common/base/job_spec.h"
#include "common/base/paths.h"
#include "common/base/result.h"
#include "hpctl/terminal.h"

namespace hpctl {

// Text of at most so many bytes, as its files lie there, is prepared without being asked.
inline constexpr uint64_t kMaxPreparedAtSubmit = 64U << 20;

// Puts the prefix of a dataset below $HPCTL_HOME/data in the place of every path of the job's data
// that is text, and removes those that nobody uses any more (prepared_data.h). Progress, and how
// pairs and conversations fill the sequences, go to `terminal.err`. Errors: too much text (and the
// command to run instead), a tokenizer that is missing, not known or larger than the model's
// vocabulary, data prepared with another tokenizer than the job's.
Outcome prepare_text(JobSpec& spec, const HomePaths& paths, const Terminal& terminal);

}  // namespace hpctl
