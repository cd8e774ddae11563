// SPDX-License-Identifier: Apache-2.0
// The draft as a job file: only the keys without which the job would be another one, each with a
// comment that names its source.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/job/job_spec.h"
#include "hpctl/migrate/draft.h"

namespace hpctl::migrate {

struct JobText {
  std::string text;
  std::optional<JobSpec> spec;        // nullopt: there are problems
  std::vector<std::string> problems;  // "KEY: MESSAGE (SOURCE)"
};

// `directory`: relative paths count from it. `heading` is written as a comment above.
JobText write_job(const Draft& draft, const std::string& directory, const std::string& heading);

}  // namespace hpctl::migrate
