// SPDX-License-Identifier: Apache-2.0
// workload.train.model.from: the directory of a Hugging Face model, as the model of a job.
//
//   HPCTL_HOME/models/HASH/step-0.g0   its weights, imported once; HASH is of config.json and of
//   the
//                                      names, sizes and times of the files with weights
//
// A job that was submitted names the checkpoint in checkpoint.resume, so its record tells that it
// is needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "common/job/paths.h"
#include "hpctl/terminal.h"

namespace hpctl {

// From its config.json.
Result<ModelSpec> read_model_directory(const std::string& directory);

// Has the job begin with the weights, if it begins with no other checkpoint. Imports them where
// that was not done yet.
Outcome import_model(JobSpec& spec, const HomePaths& paths, const Terminal& terminal);

// Imported models that no recorded job names, and that no submission has used since
// `since_wall_ms`: their directories. An error, if a job's record cannot be read: then nothing is
// known to be unused.
Result<std::vector<std::string>> find_unused_models(const HomePaths& paths, int64_t since_wall_ms);

}  // namespace hpctl
