// SPDX-License-Identifier: Apache-2.0
// The environment that torchrun would give a worker, for programs that are started without a
// launcher. Variables of the user are never overwritten.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "agent/shim/task_settings.h"

namespace hpctl::shim {

using Variables = std::vector<std::pair<std::string, std::string>>;

// True for torchrun, `python -m torch.distributed.run`, accelerate, deepspeed, mpirun and the like:
// they make these variables for the workers that they start.
bool brings_launcher(const std::string& program, const std::vector<std::string>& arguments);

Variables launcher_environment(const TaskSettings& settings, const step::Start& start);

}  // namespace hpctl::shim
