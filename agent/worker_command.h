// SPDX-License-Identifier: Apache-2.0
// From StartWorkers to the command, environment and workload document of one rank.
#pragma once

#include <string>

#include "agent/holder/holder_protocol.h"
#include "agent/node_place.h"
#include "common/base/result.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl::agent {

// `local_rank` indexes start.ranks(). kInvalidArgument when the workload document is damaged, a
// variable has no proper name, or all is too large for one packet.
Result<holder::Spawn> make_spawn(const v1::StartWorkers& start, int32_t local_rank,
                                 const NodePlace& place);

// A standby for the job of `start` (holder::Spawn). Likewise.
Result<holder::Spawn> make_standby(const v1::StartWorkers& start, const NodePlace& place);

// The environment that a command, unlike hptrain, needs: its error files' directory, and, on the
// node of rank 0, a free MASTER_PORT. kUnavailable for the port: another generation gets another
// one.
Outcome prepare_command(const v1::StartWorkers& start, const NodePlace& place);

}  // namespace hpctl::agent
