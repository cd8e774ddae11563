// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/core/host_health.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "common/base/join.h"
#include "common/base/printable.h"

namespace hpctl::agent {
namespace {

constexpr double kLeastMemoryShare = 0.9;
constexpr double kLeastNumaShare = 0.5;
constexpr size_t kMostNamed = 8;
constexpr size_t kMaxMessageBytes = 160;

std::optional<int> number_of(std::string_view text) {
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < 0) {
    return std::nullopt;
  }
  return value;
}

void raise(Finding& finding, Verdict verdict, Remedy remedy = Remedy::kNone) {
  finding.verdict = std::max(finding.verdict, verdict);
  if (verdict == Verdict::kFail) finding.remedy = std::max(finding.remedy, remedy);
}

std::string join_some(std::vector<std::string> names) {
  const size_t more = names.size() > kMostNamed ? names.size() - kMostNamed : 0;
  names.resize(names.size() - more);
  return join(names, ", ") + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

// The meaning of a kernel message for the machine. The first match counts.
struct KernelMeaning {
  std::string_view first;
  std::string_view second;  // too; "" = none
  Verdict verdict;
  Remedy remedy;
};
constexpr std::array<KernelMeaning, 9> kKernelMeanings = {{
    {"Hardware Error", "event severity: corrected", Verdict::kWarn, Remedy::kNone},
    {"Hardware Error", "event severity: fatal", Verdict::kFail, Remedy::kReplace},
    {"Hardware Error", "Uncorrected", Verdict::kFail, Remedy::kReplace},
    {"Machine check events logged", "", Verdict::kWarn, Remedy::kNone},
    {"Memory failure: ", "", Verdict::kFail, Remedy::kReboot},
    {"Remounting filesystem read-only", "", Verdict::kFail, Remedy::kReboot},
    {"critical medium error, dev ", "", Verdict::kFail, Remedy::kReplace},
    {"I/O error, dev nvme", "", Verdict::kWarn, Remedy::kNone},
    {"watchdog: BUG: soft lockup", "", Verdict::kWarn, Remedy::kNone},
}};

}  // namespace

std::optional<int> count_cpus(std::string_view list) {
  while (!list.empty() && list.back() == '\n') list.remove_suffix(1);
  int count = 0;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    const std::string_view range = list.substr(0, end);
    const size_t dash = range.find('-');
    const auto first = number_of(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number_of(range.substr(dash + 1));
    if (!first || !last || *last < *first || *last > 1 << 20) return std::nullopt;
    count += *last - *first + 1;
    if (count > 1 << 20) return std::nullopt;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return count;
}

std::optional<int64_t> find_kib(std::string_view meminfo, std::string_view name) {
  const std::string label = std::string(name) + ":";
  const size_t at = meminfo.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = meminfo.substr(at + label.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  int64_t value = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (parsed.ec != std::errc() || value < 0) return std::nullopt;
  return value;
}

Finding judge_cpus(const CpuState& cpus, std::optional<int> expected, const std::string& type) {
  Finding finding{"host.cpus", Verdict::kSkipped, "the kernel does not tell its processors", {}};
  if (!cpus.online) return finding;
  finding.verdict = Verdict::kPass;
  finding.evidence["online"] = std::to_string(*cpus.online);
  finding.reason = std::to_string(*cpus.online) + " processors are online";
  if (cpus.present) {
    finding.evidence["present"] = std::to_string(*cpus.present);
    if (*cpus.present > *cpus.online) {
      raise(finding, Verdict::kWarn);
      finding.reason += " of " + std::to_string(*cpus.present) + " that are there";
    }
  }
  if (!expected) return finding;
  finding.evidence["expected"] = std::to_string(*expected);
  const int there = cpus.present.value_or(*cpus.online);
  if (there >= *expected || 2 * there == *expected) return finding;
  raise(finding, Verdict::kFail, Remedy::kReboot);
  finding.reason = std::to_string(there) + " of " + std::to_string(*expected) +
                   " processors of an instance " + type + " found";
  return finding;
}

Finding judge_memory(std::optional<int64_t> total_kib, std::optional<int> expected_gib,
                     const std::string& type) {
  Finding finding{"host.memory", Verdict::kSkipped, "the kernel does not tell its memory", {}};
  if (!total_kib) return finding;
  const double gib = static_cast<double>(*total_kib) / (1 << 20);
  const std::string text = std::to_string(std::lround(gib)) + " GiB of memory";
  finding = {"host.memory", Verdict::kPass, text, {{"kib", std::to_string(*total_kib)}}};
  if (!expected_gib) return finding;
  finding.evidence["expected_gib"] = std::to_string(*expected_gib);
  if (gib >= kLeastMemoryShare * *expected_gib) return finding;
  raise(finding, Verdict::kFail, Remedy::kReboot);
  finding.reason = text + " where an instance " + type + " has " + std::to_string(*expected_gib);
  return finding;
}

Finding judge_numa(const std::vector<NumaNode>& nodes) {
  Finding finding{"host.numa", Verdict::kSkipped, "the kernel does not tell its NUMA nodes", {}};
  if (nodes.empty()) return finding;
  finding.verdict = Verdict::kPass;
  finding.reason = std::to_string(nodes.size()) + " NUMA nodes with even memory";
  if (nodes.size() == 1) finding.reason = "one NUMA node";
  // Nodes without processors are devices' memory.
  int64_t most = 0;
  for (const NumaNode& node : nodes) {
    if (node.cpus > 0) most = std::max(most, node.memory_kib);
  }
  std::vector<std::string> small;
  for (const NumaNode& node : nodes) {
    finding.evidence["node" + std::to_string(node.number)] =
        std::to_string(node.memory_kib) + " kB";
    const auto least = static_cast<int64_t>(kLeastNumaShare * static_cast<double>(most));
    if (node.cpus == 0 || node.memory_kib >= least) continue;
    small.push_back("node " + std::to_string(node.number) + " with " +
                    std::to_string(node.memory_kib >> 10) + " MiB");
  }
  if (small.empty()) return finding;
  raise(finding, Verdict::kWarn);
  finding.reason = "less memory than at the others, so that processes there run slower: " +
                   join_some(std::move(small)) + ", of " + std::to_string(most >> 10) + " MiB";
  return finding;
}

Finding judge_memory_errors(const std::vector<MemoryErrors>& controllers) {
  Finding finding{"host.edac", Verdict::kSkipped, "no memory controller tells its errors", {}};
  if (controllers.empty()) return finding;
  finding.verdict = Verdict::kPass;
  finding.reason = "no uncorrected errors of memory since boot";
  std::vector<std::string> corrected;
  std::vector<std::string> uncorrected;
  for (const MemoryErrors& errors : controllers) {
    finding.evidence[errors.controller] = std::to_string(errors.uncorrected) + " uncorrected, " +
                                          std::to_string(errors.corrected) + " corrected";
    if (errors.corrected >= kManyCorrected) {
      corrected.push_back(errors.controller + ": " + std::to_string(errors.corrected));
    }
    if (errors.uncorrected > 0) {
      uncorrected.push_back(errors.controller + ": " + std::to_string(errors.uncorrected));
    }
  }
  if (!corrected.empty()) {
    raise(finding, Verdict::kWarn);
    finding.reason = "many corrected errors of memory since boot: " + join_some(corrected);
  }
  if (!uncorrected.empty()) {
    raise(finding, Verdict::kFail, Remedy::kReplace);
    finding.reason = "uncorrected errors of memory since boot: " + join_some(uncorrected);
  }
  return finding;
}

Finding judge_kernel_messages(const std::vector<std::string>& messages) {
  Finding finding{"host.kernel", Verdict::kPass, "no complaint of the kernel in the last hour", {}};
  size_t complaints = 0;
  for (const std::string& message : messages) {
    const auto* meaning = std::find_if(kKernelMeanings.begin(), kKernelMeanings.end(),
                                       [&](const KernelMeaning& known) {
                                         return message.find(known.first) != std::string::npos &&
                                                message.find(known.second) != std::string::npos;
                                       });
    if (meaning == kKernelMeanings.end()) continue;
    ++complaints;
    if (meaning->verdict > finding.verdict)
      finding.reason = printable_line(message, kMaxMessageBytes);
    raise(finding, meaning->verdict, meaning->remedy);
  }
  if (complaints > 0) finding.evidence["messages"] = std::to_string(complaints);
  return finding;
}

Finding judge_timekeeping(const ClockState& clock) {
  Finding finding{"host.clock",
                  Verdict::kPass,
                  "the clock is kept",
                  {{"most_error_us", std::to_string(clock.most_error_us)}}};
  if (!clock.synchronised) {
    raise(finding, Verdict::kWarn);
    finding.reason = "no service keeps the clock (no chrony, ntpd or PTP)";
  } else if (clock.most_error_us > kMuchClockErrorUs) {
    raise(finding, Verdict::kWarn);
    finding.reason =
        "the clock may be off by " + std::to_string(clock.most_error_us / 1'000) + " ms";
  }
  return finding;
}

Finding judge_mounts(const std::vector<MountHealth>& mounts, int64_t deadline_ms) {
  Finding finding{"fs.mounts", Verdict::kSkipped, "no network file system is mounted", {}};
  if (mounts.empty()) return finding;
  finding.verdict = Verdict::kPass;
  finding.reason = std::to_string(mounts.size()) +
                   (mounts.size() == 1 ? " file system answers" : " file systems answer");
  std::vector<std::string> slow;
  std::vector<std::string> bad;
  for (const MountHealth& mount : mounts) {
    const std::string name = mount.path + (mount.type.empty() ? "" : " (" + mount.type + ")");
    const auto ms = std::lround(mount.milliseconds);
    if (!mount.answered) {
      bad.push_back(name + ": no answer within " + std::to_string(deadline_ms) + " ms");
    } else if (!mount.trouble.empty()) {
      bad.push_back(name + ": " + mount.trouble);
    } else {
      finding.evidence[mount.path] = std::to_string(ms) + " ms";
      if (mount.milliseconds > kSlowMountMs)
        slow.push_back(name + ": " + std::to_string(ms) + " ms");
    }
  }
  if (!slow.empty()) {
    raise(finding, Verdict::kWarn);
    finding.reason = "slow: " + join_some(std::move(slow));
  }
  if (!bad.empty()) {
    // The server's fault as often as the node's: no reboot is requested.
    raise(finding, Verdict::kFail);
    finding.reason = join_some(std::move(bad));
  }
  return finding;
}

Finding judge_rates(const std::string& check, const CounterSamples& samples, double most_per_s) {
  Finding finding{check, Verdict::kSkipped, "there is no counter of errors to watch", {}};
  if (samples.before.empty() || samples.seconds <= 0) return finding;
  finding.verdict = Verdict::kPass;
  std::vector<std::string> growing;
  for (const auto& [name, before] : samples.before) {
    const auto after = samples.after.find(name);
    if (after == samples.after.end() || after->second <= before) continue;
    const double rate = static_cast<double>(after->second - before) / samples.seconds;
    const std::string text = std::to_string(std::lround(rate)) + "/s";
    finding.evidence[name] = text;
    if (rate > most_per_s) growing.push_back(name + " " + text);
  }
  finding.reason = std::to_string(samples.before.size()) + " error counters do not change";
  if (!finding.evidence.empty()) finding.reason = "few errors are counted";
  if (growing.empty()) return finding;
  raise(finding, Verdict::kWarn);
  finding.reason = "errors are being counted: " + join_some(std::move(growing));
  return finding;
}

Finding judge_interfaces(const std::vector<Interface>& interfaces) {
  Finding finding{"net.links", Verdict::kSkipped, "there is no interface of hardware", {}};
  std::vector<std::string> dark;
  for (const Interface& interface : interfaces) {
    finding.evidence[interface.name] = !interface.up       ? "down"
                                       : interface.carrier ? "up"
                                                           : "up without a carrier";
    if (!interface.up) continue;
    finding.verdict = std::max(finding.verdict, Verdict::kPass);
    if (!interface.carrier) dark.push_back(interface.name);
  }
  if (finding.verdict == Verdict::kPass)
    finding.reason = "every interface that is up has a carrier";
  if (dark.empty()) return finding;
  raise(finding, Verdict::kWarn);
  finding.reason = "up without a carrier: " + join_some(std::move(dark));
  return finding;
}

Finding judge_burn(const BurnResult& result) {
  Finding finding{"host.burn",
                  Verdict::kPass,
                  std::to_string(result.threads) + " processors computed and " +
                      std::to_string(result.memory_bytes >> 20) + " MiB of memory kept the same",
                  {{"seconds", std::to_string(std::lround(result.seconds))}}};
  if (result.wrong_threads == 0 && result.wrong_words == 0) return finding;
  raise(finding, Verdict::kFail, Remedy::kReplace);
  finding.reason = std::to_string(result.wrong_threads) + " of " + std::to_string(result.threads) +
                   " processors computed something else than most; " +
                   std::to_string(result.wrong_words) + " words of memory changed";
  return finding;
}

}  // namespace hpctl::agent
