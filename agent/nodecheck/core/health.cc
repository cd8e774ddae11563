// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/core/health.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/join.h"
#include "common/base/printable.h"

namespace hpctl::agent {
namespace {

using nlohmann::json;

constexpr size_t kDeviceBytes = 64;  // "PCI:0000:53:00"

constexpr std::array<std::pair<const char*, XidMeaning>, 5> kMeanings = {
    {{"app", XidMeaning::kApp},
     {"ignore", XidMeaning::kIgnore},
     {"reset", XidMeaning::kReset},
     {"reboot", XidMeaning::kReboot},
     {"replace", XidMeaning::kReplace}}};

const char* name_of(XidMeaning meaning) {
  for (const auto& [name, value] : kMeanings) {
    if (value == meaning) return name;
  }
  return "?";
}

std::optional<int> number_in(const json& object, const char* key) {
  if (!object.contains(key)) return std::nullopt;
  return object.at(key).get<int>();
}

std::string name_of(const GpuHealth& gpu) {
  return "GPU " + std::to_string(gpu.index) + (gpu.uuid.empty() ? "" : " (" + gpu.uuid + ")");
}

Finding judge_answers(const std::vector<GpuHealth>& gpus) {
  Finding finding{"gpu.answer", Verdict::kPass, "every GPU answers", {}};
  std::vector<std::string> silent;
  for (const GpuHealth& gpu : gpus) {
    if (!gpu.uuid.empty()) finding.evidence["gpu" + std::to_string(gpu.index)] = gpu.uuid;
    if (!gpu.trouble.empty()) silent.push_back(name_of(gpu) + ": " + gpu.trouble);
  }
  if (silent.empty()) return finding;
  finding.verdict = Verdict::kFail;
  finding.remedy = Remedy::kReboot;
  finding.reason = join(silent, ", ");
  return finding;
}

Finding judge_ecc(const std::vector<GpuHealth>& gpus) {
  Finding finding{"gpu.ecc", Verdict::kSkipped, "no GPU tells its ECC errors", {}};
  std::vector<std::string> bad;
  for (const GpuHealth& gpu : gpus) {
    if (!gpu.uncorrected_ecc) continue;
    finding.verdict = std::max(finding.verdict, Verdict::kPass);
    if (*gpu.uncorrected_ecc == 0) continue;
    bad.push_back(name_of(gpu) + ": " + std::to_string(*gpu.uncorrected_ecc));
  }
  if (finding.verdict == Verdict::kPass) finding.reason = "no uncorrected ECC errors";
  if (bad.empty()) return finding;
  finding.verdict = Verdict::kFail;
  finding.remedy = Remedy::kReboot;  // as Xid 48, which reports them: the reset remaps the row
  finding.reason = "uncorrected ECC errors since the driver was loaded: " + join(bad, ", ");
  return finding;
}

Finding judge_rows(const std::vector<GpuHealth>& gpus) {
  Finding finding{"gpu.rows", Verdict::kSkipped, "no GPU tells its remapped rows", {}};
  std::vector<std::string> failed;
  std::vector<std::string> pending;
  for (const GpuHealth& gpu : gpus) {
    if (!gpu.remap_failed || !gpu.remap_pending) continue;
    finding.verdict = Verdict::kPass;
    if (*gpu.remap_failed) failed.push_back(name_of(gpu));
    if (*gpu.remap_pending) pending.push_back(name_of(gpu));
  }
  if (finding.verdict == Verdict::kPass) finding.reason = "no row of memory waits to be remapped";
  if (!pending.empty()) {
    finding.verdict = Verdict::kWarn;
    finding.reason = "rows of memory wait for a GPU reset to be remapped: " + join(pending, ", ");
  }
  if (!failed.empty()) {
    finding.verdict = Verdict::kFail;
    finding.remedy = Remedy::kReplace;
    finding.reason = "rows of memory could not be remapped: " + join(failed, ", ");
  }
  return finding;
}

}  // namespace

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSkipped:
      return "skipped";
    case Verdict::kPass:
      return "pass";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
  }
  return "?";
}

Verdict worst(const std::vector<Finding>& findings) {
  Verdict verdict = Verdict::kSkipped;
  for (const Finding& finding : findings) verdict = std::max(verdict, finding.verdict);
  return verdict;
}

const char* to_string(Remedy remedy) {
  switch (remedy) {
    case Remedy::kNone:
      return "none";
    case Remedy::kReboot:
      return "reboot";
    case Remedy::kReplace:
      return "replace";
  }
  return "?";
}

Remedy remedy_of(const std::vector<Finding>& findings) {
  Remedy remedy = Remedy::kNone;
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::kFail) remedy = std::max(remedy, finding.remedy);
  }
  return remedy;
}

Result<HealthTable> parse_health_table(std::string_view text, const std::string& path) {
  json document;
  try {
    document = parse_json(text);
    HealthTable table;
    for (const auto& [type, parts] : document.at("instances").items()) {
      table.instances[type] = {number_in(parts, "gpus"), number_in(parts, "efa"),
                               number_in(parts, "nvlinks"), number_in(parts, "cpus"),
                               number_in(parts, "memory_gib")};
    }
    for (const auto& [name, meaning] : kMeanings) {
      for (const int xid : document.at("xid").at(name).get<std::vector<int>>()) {
        table.xids[xid] = meaning;
      }
    }
    return table;
  } catch (const json::exception& e) {
    return Error{ErrorCode::kDataLoss, path + " cannot be used: " + problem_in(document, e)};
  }
}

InstanceParts parts_of(const HealthTable& table, const std::string& instance_type) {
  const auto it = table.instances.find(instance_type);
  return it == table.instances.end() ? InstanceParts() : it->second;
}

Finding judge_count(const std::string& check, const std::string& what, int found,
                    std::optional<int> expected, const std::string& instance_type) {
  const std::string type = instance_type.empty() ? "of unknown type" : instance_type;
  Finding finding{check, Verdict::kPass, "", {{"found", std::to_string(found)}}};
  if (!instance_type.empty()) finding.evidence["instance_type"] = instance_type;
  if (!expected) {
    finding.verdict = found == 0 ? Verdict::kSkipped : Verdict::kPass;
    finding.reason = std::to_string(found) + " " + what + " found; how many an instance " + type +
                     " has is not in instances.json";
    return finding;
  }
  finding.evidence["expected"] = std::to_string(*expected);
  finding.reason = std::to_string(found) + " of " + std::to_string(*expected) + " " + what +
                   " of an instance " + type + " found";
  if (found != *expected) finding.verdict = found < *expected ? Verdict::kFail : Verdict::kWarn;
  if (finding.verdict == Verdict::kFail) finding.remedy = Remedy::kReboot;
  return finding;
}

std::vector<Finding> judge_gpus(const std::vector<GpuHealth>& gpus) {
  return {judge_answers(gpus), judge_ecc(gpus), judge_rows(gpus)};
}

Finding judge_slowdowns(const std::vector<GpuHealth>& gpus, bool sure) {
  Finding finding{"gpu.clocks", Verdict::kSkipped, "no GPU tells what holds its clocks down", {}};
  std::vector<std::string> held;
  std::vector<std::string> warm;
  for (const GpuHealth& gpu : gpus) {
    if (!gpu.slowdown) continue;
    finding.verdict = Verdict::kPass;
    if ((*gpu.slowdown & kHardwareSlowdowns) != 0) {
      held.push_back(name_of(gpu));
    } else if ((*gpu.slowdown & kThermalSlowdown) != 0) {
      warm.push_back(name_of(gpu));
    }
  }
  if (finding.verdict == Verdict::kPass) finding.reason = "no GPU is held down by heat or power";
  if (!warm.empty()) {
    finding.verdict = Verdict::kWarn;
    finding.reason = "held down by the driver, for their temperature: " + join(warm, ", ");
  }
  if (held.empty()) return finding;
  finding.verdict = sure ? Verdict::kFail : Verdict::kWarn;
  if (sure) finding.remedy = Remedy::kReplace;
  finding.reason = "held down by the hardware (temperature or power): " + join(held, ", ");
  return finding;
}

Finding judge_nvlinks(const std::vector<GpuHealth>& gpus, std::optional<int> expected) {
  Finding finding{"gpu.nvlink", Verdict::kSkipped, "no GPU has NVLinks", {}};
  int most = expected.value_or(0);
  for (const GpuHealth& gpu : gpus) most = std::max(most, gpu.nvlinks.value_or(0));
  if (most == 0) return finding;
  finding.verdict = Verdict::kPass;
  finding.reason = "all " + std::to_string(most) + " NVLinks of every GPU are up";
  std::vector<std::string> bad;
  bool is_asked = false;
  for (const GpuHealth& gpu : gpus) {
    if (!gpu.trouble.empty() || !gpu.nvlinks_up) continue;
    is_asked = true;
    if (*gpu.nvlinks_up >= most) continue;
    bad.push_back(name_of(gpu) + ": " + std::to_string(*gpu.nvlinks_up) + " of " +
                  std::to_string(most));
  }
  if (!is_asked) {
    return {"gpu.nvlink", Verdict::kSkipped, "the driver does not tell the state of NVLinks", {}};
  }
  if (bad.empty()) return finding;
  finding.verdict = Verdict::kFail;
  finding.remedy = Remedy::kReboot;
  finding.reason = "NVLinks that are up: " + join(bad, ", ");
  return finding;
}

Finding judge_fallback(const std::string& chosen, std::optional<int> expected_efa,
                       const std::string& instance_type) {
  Finding finding{"efa.fallback", Verdict::kSkipped, "the instance type promises no EFA", {}};
  if (expected_efa.value_or(0) == 0) return finding;
  if (chosen.empty()) {
    finding.reason = "the path of messages could not be determined";
    return finding;
  }
  finding.evidence["provider"] = chosen;
  finding.verdict = Verdict::kPass;
  finding.reason = "messages go through " + chosen;
  if (chosen.starts_with("efa")) return finding;
  finding.verdict = Verdict::kFail;
  finding.remedy = Remedy::kReplace;
  finding.reason = "messages would go through " + chosen + " although an instance " +
                   instance_type + " has EFA: slow, and nothing else says so";
  return finding;
}

std::optional<XidMessage> parse_xid(std::string_view kernel_message) {
  constexpr std::string_view kStart = "NVRM: Xid (";
  const size_t start = kernel_message.find(kStart);
  if (start == std::string_view::npos) return std::nullopt;
  const std::string_view rest = kernel_message.substr(start + kStart.size());
  const size_t end = rest.find("): ");
  if (end == std::string_view::npos) return std::nullopt;
  XidMessage message;
  message.device = printable_line(rest.substr(0, end), kDeviceBytes);
  const char* number = rest.data() + end + 3;
  const auto parsed = std::from_chars(number, rest.data() + rest.size(), message.xid);
  if (parsed.ec != std::errc()) return std::nullopt;
  return message;
}

Finding judge_xids(const std::vector<XidMessage>& messages, const HealthTable& table) {
  Finding finding{"gpu.xid", Verdict::kPass, "no Xid in the last hour", {}};
  std::map<std::string, int> seen;
  for (const XidMessage& message : messages) {
    const auto it = table.xids.find(message.xid);
    const bool is_harmless = it != table.xids.end() &&
                             (it->second == XidMeaning::kApp || it->second == XidMeaning::kIgnore);
    const std::string meaning = it == table.xids.end() ? "unknown" : name_of(it->second);
    const std::string text =
        "Xid " + std::to_string(message.xid) + " (" + meaning + ") on " + message.device;
    const Verdict verdict = it == table.xids.end() ? Verdict::kWarn
                            : is_harmless          ? Verdict::kPass
                                                   : Verdict::kFail;
    const bool broken = it != table.xids.end() && it->second == XidMeaning::kReplace;
    if (verdict == Verdict::kFail) {
      finding.remedy = std::max(finding.remedy, broken ? Remedy::kReplace : Remedy::kReboot);
    }
    if (++seen[text] > 1) continue;
    if (verdict > finding.verdict || seen.size() == 1) finding.reason = text;
    finding.verdict = std::max(finding.verdict, verdict);
  }
  for (const auto& [text, count] : seen) finding.evidence[text] = std::to_string(count);
  return finding;
}

}  // namespace hpctl::agent
