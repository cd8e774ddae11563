// SPDX-License-Identifier: Apache-2.0
// TCP ports for a workload's own rendezvous (MASTER_PORT).
//
// They are drawn below the range from which the kernel serves outgoing connections, so an outgoing
// connection of another program is unlikely to hold one. A port that is free now may be taken the
// next moment; the process that binds it must still be ready to fail.
#pragma once

#include <cstdint>

#include "common/base/result.h"

namespace hpctl {

// Whether a listener on every address of this machine could bind the port now. kUnavailable if it
// is taken; the message names the port.
Outcome check_port_free(uint16_t port);

// A random port that check_port_free() likes on this machine.
Result<uint16_t> choose_free_port();

}  // namespace hpctl
