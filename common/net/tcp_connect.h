// SPDX-License-Identifier: Apache-2.0
// TCP connections that are made without waiting for longer than one wants. The sockets do not block
// and are closed at exec.
#pragma once

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/net/socket_address.h"

namespace hpctl {

// A connection on its way. `error` is an errno: EINPROGRESS while the peer's answer is awaited on
// `socket`, until poll(2) has something to say of it, POLLOUT asked for; 0 = it is made.
struct TcpAttempt {
  UniqueFd socket;  // not valid: none was to be had, `error` says why
  int error = 0;
};
TcpAttempt begin_tcp(const SocketAddress& peer);
// The answer, once there is one: 0, or an errno.
int tcp_answer_on(int socket);

// A connection that is made. kUnavailable where the peer has not answered until the deadline
// (common/net/wait_for_fd.h); what else is wrong as errno_error has it.
Result<UniqueFd> connect_tcp(const SocketAddress& peer, int64_t deadline_ms);

}  // namespace hpctl
