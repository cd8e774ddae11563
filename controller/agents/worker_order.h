// SPDX-License-Identifier: Apache-2.0
// Actions that an agent performs, as messages. A message is a function of the stored action, the
// rows and the generation's port alone, so that a repetition after a restart of the controller says
// the same; and made on the owner thread, so nothing is read for it.
#pragma once

#include <optional>

#include "common/base/paths.h"
#include "controller/agents/rendezvous_ports.h"
#include "controller/core/core.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl {

// The node whose agent performs the action; nullopt for what the controller itself performs.
std::optional<core::NodeKey> agent_of(const core::Action& action);

// Precondition: agent_of(action).
v1::ControllerMessage make_order(const core::Action& action, const core::State& state,
                                 const HomePaths& paths, const RendezvousPorts& ports);

// Whether the node has no ranks and should be ready to get some: a spare of a job that trains.
bool stands_by(const core::State& state, const core::NodeKey& node);
// Precondition: stands_by(). With a standby for each rank that a node has, where workers have any.
v1::ControllerMessage make_stand_by(const core::NodeKey& node, const core::State& state,
                                    const HomePaths& paths);

}  // namespace hpctl
