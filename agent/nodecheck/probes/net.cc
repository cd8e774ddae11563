// SPDX-License-Identifier: Apache-2.0
// net: has the machine an address that other nodes can reach, and does the provider that libfabric
// would choose carry a message.
#include "agent/nodecheck/fabric/fabric.h"
#include "agent/nodecheck/probes/own_name.h"
#include "agent/nodecheck/probes/probe.h"
#include "agent/nodecheck/probes/sysfs.h"
#include "common/base/file.h"
#include "common/base/host.h"
#include "common/base/join.h"
#include "common/net/node_address.h"

namespace hpctl::agent {
namespace {

constexpr int kNetworkDeadlineMs = 10'000;
constexpr const char* kInterfaces = "/sys/class/net";
constexpr const char* kInterfaceErrors[] = {"rx_errors", "tx_errors", "rx_crc_errors",
                                            "rx_frame_errors", "tx_carrier_errors"};
constexpr double kMostInterfaceErrorsPerSecond = 1;

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

// By its name a program such as Gloo tells others where it is.
Finding judge_own_name() {
  const std::string address = own_loopback_name();
  if (address.empty()) return {"net.name", Verdict::kPass, "no loopback in /etc/hosts", {}};
  const std::string interface = meeting_interface();
  return {"net.name",
          Verdict::kWarn,
          "/etc/hosts gives " + host_name() + " the address " + address +
              ", by which no other node reaches it; remove that line" +
              (interface.empty()
                   ? ""
                   : " (workers get GLOO_SOCKET_IFNAME=" + interface + " where it is not set)"),
          {{"address", address}}};
}

// net.provider and net.transfer.
std::vector<Finding> look_at_provider(bool transfers) {
  const auto domains = chosen_domains();
  if (!domains.ok()) {
    const bool is_fault = domains.error().code == ErrorCode::kNotFound;
    return {{"net.provider",
             is_fault ? Verdict::kFail : Verdict::kSkipped,
             domains.error().message,
             {}},
            {"net.transfer", Verdict::kSkipped, "there is no provider to try", {}}};
  }
  const FabricDomain& domain = domains->front();
  std::vector<Finding> findings = {{"net.provider",
                                    Verdict::kPass,
                                    "libfabric " + fabric_version() + " chooses " + domain.provider,
                                    {{"domain", domain.name}, {"fabric", domain.fabric}}}};
  if (!transfers) return findings;
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

// Of hardware: what is virtual (bridges, containers' pairs, the loopback) has no device.
std::vector<std::string> hardware_interfaces() {
  std::vector<std::string> found;
  const auto names = list_directory(system_path(kInterfaces));
  if (!names.ok()) return found;
  for (const std::string& name : *names) {
    if (is_accessible(system_path(kInterfaces) + "/" + name + "/device")) found.push_back(name);
  }
  return found;
}

Counters interface_errors(const std::vector<std::string>& interfaces) {
  Counters counters;
  for (const std::string& name : interfaces) {
    for (const char* counter : kInterfaceErrors) {
      const auto count =
          read_number(system_path(kInterfaces) + "/" + name + "/statistics/" + counter);
      if (count) counters[name + " " + counter] = *count;
    }
  }
  return counters;
}

// For a link that is down, the kernel does not report the carrier.
Finding look_at_links(const std::vector<std::string>& interfaces) {
  std::vector<Interface> states;
  for (const std::string& name : interfaces) {
    const auto carrier = read_number(system_path(kInterfaces) + "/" + name + "/carrier");
    states.push_back({name, carrier.has_value(), carrier.value_or(0) == 1});
  }
  return judge_interfaces(states);
}

}  // namespace

std::vector<Finding> probe_net(const ProbeContext& context) {
  const std::vector<std::string> interfaces = hardware_interfaces();
  std::vector<Finding> findings = look_at_provider(context.depth != CheckDepth::kLight);
  findings.insert(findings.begin(), {judge_addresses(), judge_own_name()});
  findings.push_back(look_at_links(interfaces));
  if (context.depth == CheckDepth::kLight) return findings;
  findings.push_back(judge_rates("net.rates",
                                 sample_twice([&] { return interface_errors(interfaces); }),
                                 kMostInterfaceErrorsPerSecond));
  return findings;
}

}  // namespace hpctl::agent
