// SPDX-License-Identifier: Apache-2.0
// Actions that an agent performs, as messages. A message is a function of the stored action and
// rows alone, so that a repetition after a restart of the controller says the same.
#pragma once

#include <optional>

#include "common/base/paths.h"
#include "controller/core/core.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl {

// The node whose agent performs the action; nullopt for what the controller itself performs.
std::optional<core::NodeKey> agent_of(const core::Action& action);

// Precondition: agent_of(action).
v1::ControllerMessage make_order(const core::Action& action, const core::State& state,
                                 const HomePaths& paths);

}  // namespace hpctl
