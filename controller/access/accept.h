// SPDX-License-Identifier: Apache-2.0
// What the controller's doors have in common.
#pragma once

#include <sys/socket.h>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/base/socket_address.h"

namespace hpctl {

// A TCP socket that listens, non-blocking. What is accepted sends at once what is written, and
// fails where its peer's machine has vanished amid that. kUnavailable: the address is not of this
// machine, or the port is in use.
Result<UniqueFd> listen_on(const SocketAddress& address);

// The next connection of `listener`, both non-blocking; invalid where none is there any more.
// Where a connection waits and no descriptor or memory is left, says so and lets some time pass,
// less if `stop_event` becomes readable. `peer`: who it is, as accept(2) has it.
UniqueFd accept_connection(int listener, int stop_event, sockaddr_storage& peer);

}  // namespace hpctl
