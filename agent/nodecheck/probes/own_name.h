// SPDX-License-Identifier: Apache-2.0
// The address that this host's own name has in /etc/hosts.
#pragma once

#include <string>

namespace hpctl::agent {

// Where /etc/hosts gives this host's name a loopback address: that address; "" = it does not.
std::string own_loopback_name();

}  // namespace hpctl::agent
