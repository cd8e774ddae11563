// SPDX-License-Identifier: Apache-2.0
// The address that /etc/hosts gives a name.
//
// Debian and Ubuntu give the host's own name 127.0.1.1. A program that asks for the address of its
// host, as Gloo does, then tells other nodes an address that leads back to themselves.
//
// Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace hpctl::agent {

// The first address of `name` in the text of a hosts file; "" = it has none.
std::string address_in_hosts(std::string_view text, std::string_view name);

// 127.0.0.0/8 and ::1.
bool is_loopback(std::string_view address);

}  // namespace hpctl::agent
