// SPDX-License-Identifier: Apache-2.0
// The messages between a worker of the built-in trainer and its holder's side, over a
// SOCK_SEQPACKET pair, whose worker's end is descriptor kControlFd (worker_abi.h). One packet is
// one message (packet_variant.h).
//
// A worker process is an incarnation; it can take part in many generations, one after another:
//
//   worker  Ready                          the engine is loaded, messages are read from now on
//   worker  Joined{1}                      peers met, state loaded: the first step begins
//   worker  PeerLost{1}                    if it loses a peer before any order; it waits then
//   node    Abort{1}                       while it trains, or waits
//   worker  Aborted{1}                     training has halted, no peer waits for this rank
//   node    Take{kProgressFd} + memfd      each generation has its own progress block
//   node    Join{2} + workload as memfd    after every rank has answered or is gone
//   worker  Joined{2}
//   node    Finish                         instead of a Join
//
// Connections to peers stay open from PeerLost or Aborted to Join, so a rank without an order yet
// does not take a rank that has one for dead.
//
// A standby is a worker that was started with an empty workload: it loads the engine, sends Ready,
// and waits for its first Join. Take{kArenaFd} with the arena of its local rank comes before the
// Join. The holder checks from time to time that it could still join: Ping{n}, Pong{n}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/result.h"

namespace hpctl::control {

// ---- to the worker ------------------------------------------------------------------------------

// Take part in `generation`. Its workload document (workload.h) travels beside as a memfd.
struct Join {
  uint64_t generation = 0;
};
// Leave `generation` and any before it.
struct Abort {
  uint64_t generation = 0;
};
// End as after SIGTERM: in training at the next step boundary with a checkpoint, otherwise at once.
struct Finish {};
// The descriptor that travels beside takes the place of `descriptor`, kProgressFd or kArenaFd, from
// the next Join on.
struct Take {
  int32_t descriptor = -1;
};
// A fault on purpose, which the worker brings about in the next step of `generation`.
struct Suffer {
  uint64_t generation = 0;
  std::string fault;  // a word of injected_fault.h that is_told_to_trainer
};
// Asked of a standby that has said Ready.
struct Ping {
  uint64_t number = 0;
};

// ---- from the worker ----------------------------------------------------------------------------

struct Ready {};
struct Joined {
  uint64_t generation = 0;
};
// The state that the next generation may start from is sealed in its arena (arena_header.h).
struct Aborted {
  uint64_t generation = 0;
};
// A collective failed because a peer went away, before any Abort. A worker without a control socket
// exits with kExitPeerLost instead. The reason is in the progress block, as last words.
struct PeerLost {
  uint64_t generation = 0;
};

// The answer.
struct Pong {
  uint64_t number = 0;
};

using ToWorker = std::variant<Join, Abort, Finish, Take, Suffer, Ping>;
using FromWorker = std::variant<Ready, Joined, Aborted, PeerLost, Pong>;

std::string encode(const ToWorker& message);
std::string encode(const FromWorker& message);
// kInvalidArgument for anything encode did not make.
Result<ToWorker> decode_to_worker(std::string_view packet);
Result<FromWorker> decode_from_worker(std::string_view packet);

}  // namespace hpctl::control
