// SPDX-License-Identifier: Apache-2.0
// What an agent says about the machine it is on.
#pragma once

#include <map>
#include <string>

namespace hpctl::agent {

// HPCTL_INSTANCE_ID, else "HOST/NODE": names the machine, so that a replacement is recognised.
std::string instance_id(const std::string& node);

// cpus, memory_bytes, hostname.
std::map<std::string, std::string> node_capabilities();

}  // namespace hpctl::agent
