// SPDX-License-Identifier: Apache-2.0
// Verdicts on a machine's processors, memory, clock, file systems and network interfaces: rules
// without I/O. Sources of the formats: Documentation/ABI/testing/sysfs-devices-system-cpu,
// sysfs-devices-edac and Documentation/filesystems/proc.rst of Linux, adjtimex(2).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/nodecheck/core/health.h"

namespace hpctl::agent {

// "0-3,8" = 5; nullopt for what is not such a list. Of Linux's cpulists.
std::optional<int> count_cpus(std::string_view list);
// The value of "MemTotal:   123 kB" in /proc/meminfo, or "Node 0 MemTotal: 123 kB"; nullopt = no
// such line.
std::optional<int64_t> find_kib(std::string_view meminfo, std::string_view name);

struct CpuState {
  std::optional<int> present;
  std::optional<int> online;
};
// host.cpus. With one thread per core an instance has half of what the table says.
Finding judge_cpus(const CpuState& cpus, std::optional<int> expected, const std::string& type);

// host.memory. Firmware and kernel keep some of the type's memory to themselves.
Finding judge_memory(std::optional<int64_t> total_kib, std::optional<int> expected_gib,
                     const std::string& type);

struct NumaNode {
  int number = 0;
  int cpus = 0;
  int64_t memory_kib = 0;
};
// host.numa: each node of memory against the largest.
Finding judge_numa(const std::vector<NumaNode>& nodes);

struct MemoryErrors {
  std::string controller;  // "mc0"
  uint64_t uncorrected = 0;
  uint64_t corrected = 0;
};
// host.edac: since boot. Corrected ones are many before one is not.
inline constexpr uint64_t kManyCorrected = 1'000;
Finding judge_memory_errors(const std::vector<MemoryErrors>& controllers);

// host.kernel: what the kernel says of processors, memory and disks.
Finding judge_kernel_messages(const std::vector<std::string>& messages);

struct ClockState {
  bool synchronised = false;  // somebody (chrony, ntpd, PTP) keeps it
  int64_t most_error_us = 0;  // how far it may be off, by the kernel
};
// host.clock. Credentials of MUNGE and certificates bear minutes; logs of several nodes are
// compared by it.
inline constexpr int64_t kMuchClockErrorUs = 1'000'000;
Finding judge_timekeeping(const ClockState& clock);

struct MountHealth {
  std::string path;
  std::string type;      // "lustre"; "" = asked for by name
  bool answered = true;  // within the deadline
  std::string trouble;   // of an answer; "" = it is fine
  double milliseconds = 0;
};
// fs.mounts: network file systems answer, and soon. `deadline_ms`: how long they had.
inline constexpr double kSlowMountMs = 1'000;
Finding judge_mounts(const std::vector<MountHealth>& mounts, int64_t deadline_ms);

// Counters by "device/counter", twice.
struct CounterSamples {
  std::map<std::string, uint64_t> before;
  std::map<std::string, uint64_t> after;
  double seconds = 0;
};
// Those of errors may grow by `most_per_s` at most. A counter that fell was reset, and is not
// judged.
Finding judge_rates(const std::string& check, const CounterSamples& samples, double most_per_s);

struct Interface {
  std::string name;
  bool up = false;
  bool carrier = false;
};
// net.links: interfaces of hardware that are up have a cable.
Finding judge_interfaces(const std::vector<Interface>& interfaces);

// host.burn of a deep check: processors and memory that computed, or kept, something else than the
// others.
struct BurnResult {
  int threads = 0;
  int wrong_threads = 0;  // whose results differ from those of most
  uint64_t memory_bytes = 0;
  uint64_t wrong_words = 0;
  double seconds = 0;
};
Finding judge_burn(const BurnResult& result);

}  // namespace hpctl::agent
