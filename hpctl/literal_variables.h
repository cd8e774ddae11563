// SPDX-License-Identifier: Apache-2.0
// $NAME in env.set, which a shell would expand and hpctl does not.
#pragma once

#include <string>
#include <vector>

#include "common/job/job_spec.h"

namespace hpctl {

// A sentence for each variable of env.set whose value refers to another one.
std::vector<std::string> describe_literal_variables(const JobSpec& spec);

}  // namespace hpctl
