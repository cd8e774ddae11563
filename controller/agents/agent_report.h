// SPDX-License-Identifier: Apache-2.0
// Converts an agent's reports to events of the core.
#pragma once

#include <optional>
#include <vector>

#include "controller/agents/progress.h"
#include "controller/core/core.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl {

// Why the first message is not a registration that can be recorded; "" = it is one.
std::string find_registration_problem(const v1::AgentMessage& message);
core::AgentRegistered make_registration(const v1::AgentMessage& message);

// The reason why a later message cannot come from a sound agent; "" = it can. Such an agent is
// ignored: a number that no job reaches would be added, compared and stored.
std::string find_report_problem(const v1::AgentMessage& message);

// The event of a durable report, in the state it meets; nullopt when it means nothing any more (an
// acknowledgement of an action that is closed or another node's) and needs no event.
std::optional<core::EventBody> make_event(const v1::AgentMessage& message,
                                          const core::State& state);

// Returns whether it knows BeatEvery.
bool beats_as_told(const v1::Register& agent);
// "IP:PORT" where the node's holder can be probed; "" = it cannot be.
std::string probe_address(const v1::Register& agent);
std::vector<RankReport> make_rank_reports(const v1::Heartbeat& heartbeat);

}  // namespace hpctl
