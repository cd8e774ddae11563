// SPDX-License-Identifier: Apache-2.0
// This node as others know it. IPv4: what Gloo, MASTER_ADDR and the clusters we know use.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

// IPv4 addresses of the interfaces that are up, without the loopback.
std::vector<std::string> own_addresses();

// The interface that has the address; "" = none has it.
std::string interface_of(const std::string& address);

// The local address of the default route; else the address of the first interface that is up and
// not the loopback; else 127.0.0.1.
std::string node_address();

// The local address from which `peer` ("IP:PORT") is reached; node_address() when there is no way.
std::string node_address_towards(const std::string& peer);

}  // namespace hpctl
