// SPDX-License-Identifier: Apache-2.0
// The environment of `hpctl submit --local`, in which the nodes of a workload.command run. Without
// it a job got that of whichever shell had started the controller.
//
//   HPCTL_HOME/submitting/KEY.env  until the controller launches the job's first node
//   JOBDIR/submitted.env           from then on until the job has ended
//
// NAME=VALUE, each with a NUL behind it; mode 0600. It may hold secrets: it is never logged, shown
// or sent.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/job/paths.h"

namespace hpctl {

// False for what belongs to hpctl, to Slurm, to the shell or to the login session of the submitter
// (docs/commands.md has the list).
bool travels_with_job(std::string_view variable);

// Those of `variables` (NAME=VALUE) that travel. Removes what submissions that were killed left
// behind a day ago.
Outcome write_submitted_environment(const HomePaths& paths, const std::string& submit_key,
                                    const std::vector<std::string>& variables);
// The job was not accepted.
void discard_submitted_environment(const HomePaths& paths, const std::string& submit_key);

// Moves it into the job's directory. Ok also where it is there already, and for a job without one.
Outcome adopt_submitted_environment(const HomePaths& paths, JobId job,
                                    const std::string& submit_key);
// nullopt: the job has none.
Result<std::optional<std::vector<std::string>>> read_submitted_environment(const HomePaths& paths,
                                                                           JobId job);
Outcome remove_submitted_environment(const HomePaths& paths, JobId job);

}  // namespace hpctl
