// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/probes/own_name.h"

#include "agent/nodecheck/core/hosts_file.h"
#include "common/base/file.h"
#include "common/base/host.h"
#include "common/net/node_address.h"

namespace hpctl::agent {
namespace {

constexpr size_t kMostBytesOfHosts = 1U << 20;

}  // namespace

std::string own_loopback_name() {
  const auto hosts = read_file(system_path("/etc/hosts"), kMostBytesOfHosts);
  const std::string address = hosts.ok() ? address_in_hosts(*hosts, host_name()) : "";
  return is_loopback(address) ? address : "";
}

std::string meeting_interface() {
  if (own_loopback_name().empty()) return "";
  const std::string address = node_address();
  return is_loopback(address) ? "" : interface_of(address);
}

}  // namespace hpctl::agent
