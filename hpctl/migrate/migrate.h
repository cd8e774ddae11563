// SPDX-License-Identifier: Apache-2.0
// From the files of other programs to a job file and a report about every key.
//
//   files --read_input--> documents --apply_table--> draft --arithmetic, nearest_preset--> draft
//         --write_job--> job.yaml, which our own parser has read
//
// The train form is a job of the built-in trainer. The command form starts the program of a script
// as it is, so only what launches it is taken.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "common/jobfile/job_yaml.h"
#include "hpctl/migrate/draft.h"

namespace hpctl::migrate {

enum class Form { kAuto, kTrain, kCommand };

struct Request {
  std::vector<std::string> files;
  Form form = Form::kAuto;
  std::vector<GivenValue> given;  // --set
  std::string directory;          // of the job file: relative paths count from it
};

struct Migration {
  Draft draft;
  Form form = Form::kTrain;
  std::vector<std::string> unknown;  // lines about keys that no table has
  std::string text;                  // the job file; "" = it is not possible
  std::optional<JobSpec> spec;
};

// kInvalidArgument: a file cannot be read or is of no program that hpctl knows.
Result<Migration> migrate_files(const Request& request);

// The tables in Markdown, for docs/migrate.md.
std::string migration_reference();

}  // namespace hpctl::migrate
