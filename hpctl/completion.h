// SPDX-License-Identifier: Apache-2.0
// Scripts that let a shell complete hpctl's command line. They are made from the table of verbs
// that the parser reads, so that what a shell offers is what hpctl takes.
//
// They offer verbs, their actions, options, and values: files if the usage says FILE, DIR, IN or
// PREFIX, numbers of the jobs of HPCTL_HOME if it says JOB. They never call a controller, because a
// shell waits while it completes.
#pragma once

#include <string>
#include <vector>

#include "hpctl/command_line.h"

namespace hpctl {

std::string bash_completion(const std::vector<Verb>& verbs);  // bash 4 and later
std::string zsh_completion(const std::vector<Verb>& verbs);
std::string fish_completion(const std::vector<Verb>& verbs);

}  // namespace hpctl
