// SPDX-License-Identifier: Apache-2.0
// efa: are all EFA devices of the instance type there and active, does libfabric offer them (else
// everything falls back to TCP in silence), and does each carry a message.
#include <cstdlib>

#include "agent/nodecheck/fabric/fabric.h"
#include "agent/nodecheck/probes/probe.h"
#include "agent/nodecheck/probes/sysfs.h"
#include "common/base/file.h"
#include "common/base/host.h"

namespace hpctl::agent {
namespace {

constexpr const char* kDevices = "/sys/class/infiniband";
constexpr const char* kAmazonVendor = "0x1d0f";
constexpr int kTransferDeadlineMs = 3'000;
// For all transfers together: skipped ones are reported.
constexpr size_t kMostTransfers = 8;
// Those that say that a peer or a path went away. Older drivers lack some.
constexpr const char* kEfaErrors[] = {"rx_drops", "retrans_timeout_events",
                                      "impaired_remote_conn_events", "unresponsive_remote_events"};
// An idle device counts none; one that others use, while a node is checked, a few.
constexpr double kMostEfaErrorsPerSecond = 100;

std::vector<std::string> efa_devices() {
  std::vector<std::string> devices;
  const std::string root = system_path(kDevices);
  const auto names = list_directory(root);
  if (!names.ok()) return devices;
  for (const std::string& name : *names) {
    if (first_line(root + "/" + name + "/device/vendor") == kAmazonVendor) devices.push_back(name);
  }
  return devices;
}

std::vector<std::string> ports_of(const std::string& device) {
  std::vector<std::string> ports;
  const std::string root = system_path(kDevices) + "/" + device + "/ports";
  const auto names = list_directory(root);
  if (!names.ok()) return ports;
  for (const std::string& name : *names) ports.push_back(root + "/" + name);
  return ports;
}

Finding judge_ports(const std::vector<std::string>& devices) {
  Finding finding{"efa.ports", Verdict::kPass, "every port is active", {}};
  std::string inactive;
  for (const std::string& device : devices) {
    for (const std::string& port : ports_of(device)) {
      const std::string state = first_line(port + "/state");  // "4: ACTIVE"
      if (state.ends_with("ACTIVE")) continue;
      inactive += (inactive.empty() ? "" : ", ") + device + " " +
                  (state.empty() ? "without a state" : state);
    }
  }
  if (inactive.empty()) return finding;
  finding.verdict = Verdict::kFail;
  finding.remedy = Remedy::kReplace;
  finding.reason = "not active: " + inactive;
  return finding;
}

// The counters of lost packets and silent peers, for each device.
Counters efa_errors(const std::vector<std::string>& devices) {
  Counters counters;
  for (const std::string& device : devices) {
    for (const std::string& port : ports_of(device)) {
      for (const char* counter : kEfaErrors) {
        const auto count = read_number(port + "/hw_counters/" + counter);
        if (count) counters[device + " " + counter] += *count;
      }
    }
  }
  return counters;
}

// Counts since boot: evidence for people. efa.rates judges their growth.
Finding read_counters(const std::vector<std::string>& devices) {
  Finding finding{"efa.counters", Verdict::kSkipped, "the driver has no hw_counters", {}};
  for (const char* counter : kEfaErrors) {
    uint64_t sum = 0;
    bool is_there = false;
    for (const std::string& device : devices) {
      for (const std::string& port : ports_of(device)) {
        const std::string text = first_line(port + "/hw_counters/" + counter);
        is_there = is_there || !text.empty();
        sum += std::strtoull(text.c_str(), nullptr, 10);
      }
    }
    if (is_there) finding.evidence[counter] = std::to_string(sum);
  }
  if (finding.evidence.empty()) return finding;
  finding.verdict = Verdict::kPass;
  finding.reason = "hw_counters since boot, summed over the devices";
  return finding;
}

Finding judge_transfers(const std::vector<FabricDomain>& domains) {
  Finding finding{"efa.transfer", Verdict::kPass, "", {}};
  std::string failed;
  for (size_t i = 0; i < std::min(domains.size(), kMostTransfers); ++i) {
    const auto report = try_transfer(domains[i], kTransferDeadlineMs);
    if (report.ok()) {
      finding.evidence[domains[i].name] = std::to_string(report->milliseconds) + " ms";
    } else {
      failed += (failed.empty() ? "" : "; ") + domains[i].name + ": " + report.error().message;
    }
  }
  finding.reason = std::to_string(finding.evidence.size()) + " of " +
                   std::to_string(domains.size()) + " domains carried a message";
  if (failed.empty()) return finding;
  finding.verdict = Verdict::kFail;
  finding.remedy = Remedy::kReplace;
  finding.reason = failed;
  return finding;
}

std::vector<Finding> ask_libfabric(bool has_devices, bool transfers) {
  // Else messages to the own node go through shared memory and show nothing.
  ::setenv("FI_EFA_ENABLE_SHM_TRANSFER", "0", 1);
  const auto domains = fabric_domains("efa");
  if (domains.ok()) {
    std::vector<Finding> findings = {
        {"efa.provider",
         Verdict::kPass,
         std::to_string(domains->size()) + " domains of the efa provider",
         {{"libfabric", fabric_version()}}}};
    if (transfers) findings.push_back(judge_transfers(*domains));
    return findings;
  }
  // A build without libfabric cannot judge; a machine with EFA and without it is at fault.
  const bool is_fault = has_devices && domains.error().code != ErrorCode::kFailedPrecondition;
  const std::string reason =
      domains.error().message +
      (is_fault ? "; collectives would fall back to TCP: see fi_info -p efa" : "");
  return {
      {"efa.provider", is_fault ? Verdict::kFail : Verdict::kSkipped, reason, {}, Remedy::kReplace},
      {"efa.transfer", Verdict::kSkipped, "there is no domain of the efa provider", {}}};
}

}  // namespace

int count_efa_devices() { return static_cast<int>(efa_devices().size()); }

std::vector<Finding> probe_efa(const ProbeContext& context) {
  const auto expected = parts_of(context.table, context.instance_type).efa;
  const std::vector<std::string> devices = efa_devices();
  std::vector<Finding> findings = {judge_count("efa.devices", "EFA devices",
                                               static_cast<int>(devices.size()), expected,
                                               context.instance_type)};
  if (devices.empty()) {
    findings.push_back({"efa.ports", Verdict::kSkipped, "there is no EFA device", {}});
    findings.push_back({"efa.counters", Verdict::kSkipped, "there is no EFA device", {}});
  } else {
    findings.push_back(judge_ports(devices));
    findings.push_back(read_counters(devices));
  }
  const bool is_light = context.depth == CheckDepth::kLight;
  const auto answers = ask_libfabric(!devices.empty(), !is_light);
  findings.insert(findings.end(), answers.begin(), answers.end());
  const auto domains = chosen_domains();
  findings.push_back(judge_fallback(domains.ok() ? domains->front().provider : "", expected,
                                    context.instance_type));
  if (is_light) return findings;
  findings.push_back(judge_rates("efa.rates", sample_twice([&] { return efa_errors(devices); }),
                                 kMostEfaErrorsPerSecond));
  return findings;
}

}  // namespace hpctl::agent
