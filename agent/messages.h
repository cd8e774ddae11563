// SPDX-License-Identifier: Apache-2.0
// Events of the node, in the words of the wire contract.
#pragma once

#include <cstdint>
#include <string>

#include "agent/core/progress.h"
#include "agent/core/supervisor.h"
#include "agent/holder/holder_protocol.h"
#include "agent/node_facts.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl::agent {

// The beginning of every message of a session of the node.
v1::AgentMessage envelope(uint64_t job, const std::string& node, const std::string& boot_id);

// Identifies the node; `address`: where other nodes reach it, "" = nowhere.
v1::Register to_message(const NodeFacts& facts, const holder::Hello& hello,
                        const std::string& address);
// The holder's memory of earlier agents.
Reported reported_before(const holder::Hello& hello);
ActionKey key_of(const v1::StartWorkers& start);
v1::WorkerExited to_message(const holder::Exited& exit);
v1::ActionDone to_message(const Done& done);
v1::ActionFailed to_message(const Failed& failed);
v1::CheckpointCommitted to_message(const Commit& commit);
v1::BadStep to_message(const BadStepNews& news);
v1::RunningWorker to_message(const StartedWorker& worker);
v1::WorkerProgress to_message(const StartedWorker& worker, const ProgressSample& sample);

}  // namespace hpctl::agent
