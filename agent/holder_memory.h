// SPDX-License-Identifier: Apache-2.0
// The holder's first messages to a new agent: everything that earlier agents of this node knew.
#pragma once

#include <utility>
#include <vector>

#include "agent/holder/holder_protocol.h"
#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/net/packet_socket.h"

namespace hpctl::agent {

struct HolderMemory {
  holder::Hello hello;
  std::vector<std::pair<holder::WorkerState, UniqueFd>> workers;  // with the page of living ones
  std::vector<holder::StoredReport> reports;
  std::vector<holder::Exited> exits;
};

// Reads the greeting; waits for it for a bounded time. kFailedPrecondition when the holder is of
// another version that this program does not understand.
Result<HolderMemory> read_memory(PacketSocket& socket);

}  // namespace hpctl::agent
