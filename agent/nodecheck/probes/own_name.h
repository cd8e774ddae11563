// SPDX-License-Identifier: Apache-2.0
// The address that this host's own name has in /etc/hosts, and the interface for programs to use in
// its place.
#pragma once

#include <string>

namespace hpctl::agent {

// Where /etc/hosts gives this host's name a loopback address: that address; "" = it does not.
std::string own_loopback_name();

// The interface by which other nodes are to meet a program that would use that address
// (GLOO_SOCKET_IFNAME); "" = programs find it by themselves, or there is none.
std::string meeting_interface();

}  // namespace hpctl::agent
