// SPDX-License-Identifier: Apache-2.0
// Code that all listeners of the controller share.
#pragma once

#include <sys/socket.h>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/net/socket_address.h"

namespace hpctl {

// A TCP socket that listens, non-blocking. Accepted connections send written data at once, and fail
// if the peer's machine vanishes meanwhile. kUnavailable: the address is not of this machine, or
// the port is in use.
Result<UniqueFd> listen_on(const SocketAddress& address);

// The next connection of `listener`, both non-blocking; invalid where none is there any more.
// Where a connection waits and no descriptor or memory is left, says so and lets some time pass,
// less if `stop_event` becomes readable. `peer`: who it is, as accept(2) has it.
UniqueFd accept_connection(int listener, int stop_event, sockaddr_storage& peer);

}  // namespace hpctl
