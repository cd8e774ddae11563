// SPDX-License-Identifier: Apache-2.0
// net: has the machine an address that other nodes can reach, and does the provider that libfabric
// would choose carry a message.
#include <cstdlib>

#include "agent/probes/fabric.h"
#include "agent/probes/probe.h"
#include "common/base/hyperpod.h"
#include "common/base/join.h"
#include "common/base/node_address.h"

namespace hpctl::agent {
namespace {

constexpr int kNetworkDeadlineMs = 10'000;

Finding judge_addresses() {
  const auto addresses = own_addresses();
  Finding finding{"net.address",
                  Verdict::kWarn,
                  "no interface but the loopback is up: other nodes cannot reach this one",
                  {}};
  if (addresses.empty()) return finding;
  const std::string list = join(addresses, ", ");
  return {"net.address", Verdict::kPass, "has " + list, {{"addresses", list}}};
}

// What the user asked for, else efa where it is, else tcp.
Result<std::vector<FabricDomain>> chosen_domains() {
  const char* asked = std::getenv("FI_PROVIDER");
  if (asked != nullptr && *asked != '\0') return fabric_domains(asked);
  auto domains = fabric_domains("efa");
  return domains.ok() ? domains : fabric_domains("tcp");
}

}  // namespace

std::vector<Finding> probe_net(const ProbeContext&) {
  std::vector<Finding> findings = {judge_addresses()};
  const auto domains = chosen_domains();
  if (!domains.ok()) {
    const bool is_fault = domains.error().code == ErrorCode::kNotFound;
    findings.push_back({"net.provider",
                        is_fault ? Verdict::kFail : Verdict::kSkipped,
                        domains.error().message,
                        {}});
    findings.push_back({"net.transfer", Verdict::kSkipped, "there is no provider to try", {}});
    return findings;
  }
  const FabricDomain& domain = domains->front();
  findings.push_back({"net.provider",
                      Verdict::kPass,
                      "libfabric " + fabric_version() + " chooses " + domain.provider,
                      {{"domain", domain.name}, {"fabric", domain.fabric}}});
  const auto report = try_transfer(domain, kNetworkDeadlineMs);
  if (!report.ok()) {
    findings.push_back({"net.transfer",
                        Verdict::kFail,
                        domain.provider + " on " + domain.name + ": " + report.error().message,
                        {}});
    return findings;
  }
  findings.push_back({"net.transfer",
                      Verdict::kPass,
                      std::to_string(report->bytes) + " bytes went through " + domain.provider,
                      {{"milliseconds", std::to_string(report->milliseconds)}}});
  return findings;
}

}  // namespace hpctl::agent
