// SPDX-License-Identifier: Apache-2.0
// Shows a controller, without the agent proper, whether this node still has its holder: a TCP
// socket of the holder that carries no data. The kernel answers a connection as long as the process
// has the socket, however busy the machine is, and refuses it once the process is gone. It also
// answers for a stopped holder, which the agent proper finds (agent/holder_link.h).
#pragma once

#include <cstdint>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl::holder {

class ProbePort {
 public:
  // On any port. `everywhere`: of all addresses; else of this machine only.
  static Result<ProbePort> open(bool everywhere);

  int fd() const { return socket_.get(); }
  uint16_t port() const { return port_; }
  // Takes one connection and closes it. False when that cannot be done any more; then who probes is
  // still answered, until the kernel's queue is full.
  bool accept_one() const;

 private:
  ProbePort(UniqueFd socket, uint16_t port) : socket_(std::move(socket)), port_(port) {}

  UniqueFd socket_;
  uint16_t port_ = 0;
};

}  // namespace hpctl::holder
