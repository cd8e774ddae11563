// SPDX-License-Identifier: Apache-2.0
// hpagent check: the probes as a command, for people, for Slurm's HealthCheckProgram and Prolog,
// and for the agent before it starts workers.
#pragma once

#include <string>
#include <vector>

namespace hpctl::agent {

// `arguments` are those after `check`. Ends the process by itself, with a finding that says so,
// when a probe hangs: below the 60 s after which Slurm would kill it without a word. Returns an
// exit code of exit_codes.h.
int run_check(const std::vector<std::string>& arguments, const std::string& program_directory);

}  // namespace hpctl::agent
