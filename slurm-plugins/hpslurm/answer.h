// SPDX-License-Identifier: Apache-2.0
// The result of a call of hpslurm, and the mapping of libslurm's errno to our errors.
#pragma once

#include <string>

#include "common/base/json.h"
#include "common/base/result.h"

namespace hpctl::slurm {

using Answer = Result<nlohmann::json>;

// The error of the libslurm call that has just failed: "WHAT: Slurm's own words".
Error last_error(const std::string& what);
// The same where a command of Slurm has printed the words: "WHAT: WORDS".
Error error_in_words(const std::string& what, const std::string& words);

}  // namespace hpctl::slurm
