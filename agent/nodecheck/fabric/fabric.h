// SPDX-License-Identifier: Apache-2.0
// libfabric as hpagent's checks use it: which domains a provider offers, and a transfer that shows
// that one of them works. The library is loaded, not linked: on EFA machines the installer's own.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl::agent {

struct FabricDomain {
  std::string provider;  // "efa", "tcp;ofi_rxm"
  std::string name;      // "rdmap113s0-rdm", "eth0"
  std::string fabric;
  std::string source;  // the address of this machine by which it was found; "" = by its name
};

struct TransferReport {
  size_t bytes = 0;
  double milliseconds = 0;
};

// Domains for reliable datagrams of a provider ("efa", "tcp"); with `source`, an address of this
// machine, those that reach others by it. kNotFound: the provider has none here. kUnavailable: no
// libfabric, or one that cannot be used; kFailedPrecondition: this build has no libfabric headers.
Result<std::vector<FabricDomain>> fabric_domains(const std::string& provider,
                                                 const std::string& source = "");

// The domains of libfabric's preferred provider: FI_PROVIDER if set, else efa if present, else tcp.
// `source` as above; EFA's devices have no such address, and are all of them.
Result<std::vector<FabricDomain>> chosen_domains(const std::string& source = "");

// Sends and receives between two endpoints of this process through the domain, compares what
// arrived; at most `deadline_ms`. The error says which step failed.
Result<TransferReport> try_transfer(const FabricDomain& domain, int deadline_ms);

// "1.17"; "" when there is no library.
std::string fabric_version();

}  // namespace hpctl::agent
