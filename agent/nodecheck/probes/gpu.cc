// SPDX-License-Identifier: Apache-2.0
// gpu: are all GPUs of the instance type there, do they answer, is their memory whole, and what has
// the driver complained of.
#include "agent/nodecheck/probes/kernel_log.h"
#include "agent/nodecheck/probes/nvml.h"
#include "agent/nodecheck/probes/probe.h"

namespace hpctl::agent {
namespace {

constexpr int64_t kXidAgeSeconds = 3'600;

// With GPUs, an impossible look is distinguished from one that found nothing.
Finding find_xids(const HealthTable& table, bool has_gpus) {
  const auto messages = recent_kernel_messages(kXidAgeSeconds);
  if (!messages.ok()) {
    return {"gpu.xid",
            has_gpus ? Verdict::kWarn : Verdict::kSkipped,
            messages.error().message + "; needs root",
            {}};
  }
  std::vector<XidMessage> xids;
  for (const std::string& message : *messages) {
    if (const auto xid = parse_xid(message)) xids.push_back(*xid);
  }
  return judge_xids(xids, table);
}

// Without a working driver: a fault where the instance type has GPUs.
std::vector<Finding> without_nvml(const Error& error, std::optional<int> expected) {
  const bool is_broken = error.code != ErrorCode::kNotFound || expected.value_or(0) > 0;
  const std::string why = error.code == ErrorCode::kNotFound
                              ? "no NVIDIA driver library: " + error.message
                              : error.message;
  // A reboot does not install missing software.
  const Remedy remedy = error.code == ErrorCode::kNotFound ? Remedy::kReplace : Remedy::kReboot;
  std::vector<Finding> findings = {
      {"gpu.driver", is_broken ? Verdict::kFail : Verdict::kSkipped, why, {}, remedy}};
  for (const char* check :
       {"gpu.count", "gpu.answer", "gpu.ecc", "gpu.rows", "gpu.clocks", "gpu.nvlink"}) {
    findings.push_back({check, Verdict::kSkipped, "there is no working driver to ask", {}});
  }
  return findings;
}

}  // namespace

std::vector<Finding> probe_gpu(const ProbeContext& context) {
  const InstanceParts parts = parts_of(context.table, context.instance_type);
  const bool watches = context.depth != CheckDepth::kLight;
  const auto inventory = read_gpus(watches);
  std::vector<Finding> findings;
  if (!inventory.ok()) {
    findings = without_nvml(inventory.error(), parts.gpus);
  } else {
    findings.push_back(
        {"gpu.driver", Verdict::kPass, "NVML works", {{"driver", inventory->driver}}});
    findings.push_back(judge_count("gpu.count", "GPUs", static_cast<int>(inventory->gpus.size()),
                                   parts.gpus, context.instance_type));
    const auto health = judge_gpus(inventory->gpus);
    findings.insert(findings.end(), health.begin(), health.end());
    findings.push_back(judge_slowdowns(inventory->gpus, watches));
    findings.push_back(judge_nvlinks(inventory->gpus, parts.nvlinks));
  }
  findings.push_back(find_xids(context.table, inventory.ok() && !inventory->gpus.empty()));
  return findings;
}

}  // namespace hpctl::agent
