// SPDX-License-Identifier: Apache-2.0
// HyperPod's own detection of hung jobs, which a job asks for with the variable
// HYPERPOD_HANG_RULES (a JSON file of rules). It then watches beside hpctl.
#pragma once

#include <string>

#include "common/job/job_spec.h"

namespace hpctl {

// A warning for `hpctl submit`: that two watch, and what that means if the rules cancel a job. ""
// = only hpctl does. Reads the file of rules, if this machine has it.
std::string describe_second_watcher(const JobSpec& spec);

}  // namespace hpctl
