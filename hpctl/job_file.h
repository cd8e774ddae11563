// SPDX-License-Identifier: Apache-2.0
// The job file that a verb was given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/job/job_spec.h"
#include "common/jobfile/job_yaml.h"
#include "hpctl/command_line.h"

namespace hpctl {

// The values that --set and --name give beside the job file.
Result<std::vector<GivenValue>> given_values(const Invocation& invocation);

// `path` "-" is the standard input; relative paths in it count from the working directory.
// nullopt: all its mistakes were told on terminal.err, and the verb ends with kExitUsage.
std::optional<JobSpec> read_job_file(const Terminal& terminal, const std::string& path,
                                     const std::vector<GivenValue>& given = {});

// A recorded job with the given values in place of its own; relative paths among them count from
// the working directory. `what` names the job in messages. nullopt: as above.
std::optional<JobSpec> change_job(const Terminal& terminal, const JobSpec& spec,
                                  const std::string& what, const std::vector<GivenValue>& given);

// The first problem of a job that was changed since, as "KEY: MESSAGE"; "" = none.
std::string first_problem(const JobSpec& spec);

}  // namespace hpctl
