// SPDX-License-Identifier: Apache-2.0
// Asks the trainer about a checkpoint, without a job: `hpctl eval`, `hpctl generate`.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace hpctl {

// `word`: a checkpoint directory, a step-N.gG directory in it, or a JOB: the newest valid
// checkpoint that it saved or went on from. Returns the path of the step directory.
Result<std::string> resolve_model(const std::string& word);

// The output of one of hpctl's own programs, or its exit status where it failed: then it has said
// why on standard error. kExitInterrupted: Ctrl-C ended it.
Result<std::variant<std::string, int>> ask_program(const std::string& name,
                                                   std::vector<std::string> words);

// As ask_program(): what hptrain answers (trainer/loop/model_request.h).
Result<std::variant<nlohmann::json, int>> ask_trainer(const nlohmann::json& request);

}  // namespace hpctl
