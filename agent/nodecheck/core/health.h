// SPDX-License-Identifier: Apache-2.0
// Verdicts on the results of probes: rules without I/O.
//
// A finding that fails names its remedy if the fault is in the node's own parts: a reboot, which
// also resets its devices, or another machine. The source is the data file's classes of Xids. For
// missing or silent devices it is HyperPod's own health agent, which reboots.
//
// A probe answers every question it knows with a Finding. A probe that could not run is `skipped`
// with the reason, never left out. A check's verdict is its worst finding; a check with only
// skipped findings is skipped.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace hpctl::agent {

enum class Verdict { kSkipped, kPass, kWarn, kFail };
const char* to_string(Verdict verdict);  // "skipped", ...

enum class Remedy { kNone, kReboot, kReplace };
const char* to_string(Remedy remedy);  // "none", ...

struct Finding {
  std::string check;  // "gpu.count"
  Verdict verdict = Verdict::kSkipped;
  std::string reason;  // one line
  std::map<std::string, std::string> evidence;
  Remedy remedy = Remedy::kNone;  // of kFail
};

Verdict worst(const std::vector<Finding>& findings);
// The remedy that repairs all failures.
Remedy remedy_of(const std::vector<Finding>& findings);

// The content of the data file instances.json.
enum class XidMeaning { kApp, kIgnore, kReset, kReboot, kReplace };
struct InstanceParts {
  std::optional<int> gpus;
  std::optional<int> efa;
  std::optional<int> nvlinks;  // of each GPU
  std::optional<int> cpus;     // with two threads per core
  std::optional<int> memory_gib;
};
struct HealthTable {
  std::map<std::string, InstanceParts> instances;
  std::map<int, XidMeaning> xids;
};
// kDataLoss names `path` and what is wrong.
Result<HealthTable> parse_health_table(std::string_view text, const std::string& path);
// Of the type; nothing known for one that is not in the table.
InstanceParts parts_of(const HealthTable& table, const std::string& instance_type);

// `what` in the plural, "GPUs". Without an expectation any number but 0 passes, and 0 is skipped.
Finding judge_count(const std::string& check, const std::string& what, int found,
                    std::optional<int> expected, const std::string& instance_type);

struct GpuHealth {
  int index = 0;
  std::string uuid;
  std::string trouble;                      // why it does not answer; "" = it does
  std::optional<uint64_t> uncorrected_ecc;  // since the driver was loaded
  std::optional<bool> remap_pending;
  std::optional<bool> remap_failed;
  std::optional<uint64_t> slowdown = {};  // kHardwareSlowdowns and others, of NVML's reasons
  std::optional<int> nvlinks = {};        // that it has
  std::optional<int> nvlinks_up = {};
};
// nvmlClocksEventReasons: slowdown, thermal slowdown and power brake, by the hardware; thermal
// slowdown by the driver.
inline constexpr uint64_t kHardwareSlowdowns = 0x8 | 0x40 | 0x80;
inline constexpr uint64_t kThermalSlowdown = 0x20;
// gpu.answer, gpu.ecc and gpu.rows over all GPUs.
std::vector<Finding> judge_gpus(const std::vector<GpuHealth>& gpus);
// gpu.clocks: GPUs that the hardware holds down. `sure`: twice in a row; a GPU that was busy a
// moment ago may be held down for one.
Finding judge_slowdowns(const std::vector<GpuHealth>& gpus, bool sure);
// gpu.nvlink: links against the instance type, where it is known, and the GPUs of a node against
// each other.
Finding judge_nvlinks(const std::vector<GpuHealth>& gpus, std::optional<int> expected);

// efa.fallback: libfabric chooses EFA if the machine should have it; else collectives silently use
// TCP. `chosen`: the provider; "" = none could be queried.
Finding judge_fallback(const std::string& chosen, std::optional<int> expected_efa,
                       const std::string& instance_type);

struct XidMessage {
  int xid = 0;
  std::string device;  // PCI address
};
// "NVRM: Xid (PCI:0000:53:00): 79, ..." ; nullopt for any other line.
std::optional<XidMessage> parse_xid(std::string_view kernel_message);
Finding judge_xids(const std::vector<XidMessage>& messages, const HealthTable& table);

}  // namespace hpctl::agent
