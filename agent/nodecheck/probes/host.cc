// SPDX-License-Identifier: Apache-2.0
// host: processors, memory, NUMA nodes, errors of memory, the kernel's complaints, the clock; and,
// in a deep check, a burn of processors and memory.
#include <sys/timex.h>

#include <cstdlib>

#include "agent/nodecheck/core/host_health.h"
#include "agent/nodecheck/probes/burn.h"
#include "agent/nodecheck/probes/kernel_log.h"
#include "agent/nodecheck/probes/probe.h"
#include "agent/nodecheck/probes/sysfs.h"
#include "common/base/file.h"
#include "common/base/host.h"

namespace hpctl::agent {
namespace {

constexpr int64_t kKernelLogAgeSeconds = 3'600;
constexpr const char* kCpus = "/sys/devices/system/cpu";
constexpr const char* kNuma = "/sys/devices/system/node";
constexpr const char* kEdac = "/sys/devices/system/edac/mc";

std::string all_of(const std::string& path) {
  auto text = read_file(system_path(path), 1U << 20);
  return text.ok() ? std::move(*text) : "";
}

std::optional<int> cpus_in(const std::string& path) {
  const std::string list = first_line(system_path(path));
  return list.empty() ? std::nullopt : count_cpus(list);
}

// Names below a directory that begin so and end in digits: "node0", "mc1".
std::vector<std::string> numbered(const std::string& directory, const std::string& prefix) {
  std::vector<std::string> found;
  const auto names = list_directory(system_path(directory));
  if (!names.ok()) return found;
  for (const std::string& name : *names) {
    const bool fits = name.starts_with(prefix) && name.size() > prefix.size() &&
                      name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
    if (fits) found.push_back(name);
  }
  return found;
}

std::vector<NumaNode> numa_nodes() {
  std::vector<NumaNode> nodes;
  for (const std::string& name : numbered(kNuma, "node")) {
    const std::string directory = std::string(kNuma) + "/" + name;
    const auto memory = find_kib(all_of(directory + "/meminfo"), "MemTotal");
    if (!memory) continue;
    const std::string list = first_line(system_path(directory + "/cpulist"));
    nodes.push_back({std::atoi(name.c_str() + 4), count_cpus(list).value_or(0), *memory});
  }
  return nodes;
}

std::vector<MemoryErrors> memory_errors() {
  std::vector<MemoryErrors> controllers;
  for (const std::string& name : numbered(kEdac, "mc")) {
    const std::string directory = std::string(kEdac) + "/" + name;
    const auto uncorrected = read_number(system_path(directory + "/ue_count"));
    const auto corrected = read_number(system_path(directory + "/ce_count"));
    if (uncorrected && corrected) controllers.push_back({name, *uncorrected, *corrected});
  }
  return controllers;
}

Finding look_at_kernel_log() {
  const auto messages = recent_kernel_messages(kKernelLogAgeSeconds);
  if (messages.ok()) return judge_kernel_messages(*messages);
  return {"host.kernel", Verdict::kSkipped, messages.error().message + "; needs root", {}};
}

Finding look_at_clock() {
  if (!is_this_machine()) {
    return {"host.clock", Verdict::kSkipped, "HPCTL_SYSROOT is set: the clock is another's", {}};
  }
  timex state{};  // modes = 0: only asks
  const int status = ::adjtimex(&state);
  if (status < 0) {
    return {"host.clock", Verdict::kSkipped, "the kernel does not tell how the clock is kept", {}};
  }
  return judge_timekeeping(
      {status != TIME_ERROR && (state.status & STA_UNSYNC) == 0, state.maxerror});
}

}  // namespace

std::vector<Finding> probe_host(const ProbeContext& context) {
  const InstanceParts parts = parts_of(context.table, context.instance_type);
  const CpuState cpus{cpus_in(std::string(kCpus) + "/present"),
                      cpus_in(std::string(kCpus) + "/online")};
  std::vector<Finding> findings = {
      judge_cpus(cpus, parts.cpus, context.instance_type),
      judge_memory(find_kib(all_of("/proc/meminfo"), "MemTotal"), parts.memory_gib,
                   context.instance_type),
      judge_numa(numa_nodes()),
      judge_memory_errors(memory_errors()),
      look_at_kernel_log(),
      look_at_clock(),
  };
  if (context.depth == CheckDepth::kDeep) findings.push_back(judge_burn(burn()));
  return findings;
}

}  // namespace hpctl::agent
