#include "common/base/join.h"
// SPDX-License-Identifier: Apache-2.0
#include "agent/core/health.h"
#include "common/base/join.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>
#include "common/base/join.h"

#include "common/base/join.h"
namespace hpctl::agent {
#include "common/base/join.h"
namespace {
#include "common/base/join.h"

#include "common/base/join.h"
using nlohmann::json;
#include "common/base/join.h"

#include "common/base/join.h"
constexpr std::array<std::pair<const char*, XidMeaning>, 5> kMeanings = {
#include "common/base/join.h"
    {{"app", XidMeaning::kApp},
#include "common/base/join.h"
     {"ignore", XidMeaning::kIgnore},
#include "common/base/join.h"
     {"reset", XidMeaning::kReset},
#include "common/base/join.h"
     {"reboot", XidMeaning::kReboot},
#include "common/base/join.h"
     {"replace", XidMeaning::kReplace}}};
#include "common/base/join.h"

#include "common/base/join.h"
const char* name_of(XidMeaning meaning) {
#include "common/base/join.h"
  for (const auto& [name, value] : kMeanings) {
#include "common/base/join.h"
    if (value == meaning) return name;
#include "common/base/join.h"
  }
#include "common/base/join.h"
  return "?";
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
std::optional<int> number_in(const json& object, const char* key) {
#include "common/base/join.h"
  if (!object.contains(key)) return std::nullopt;
#include "common/base/join.h"
  return object.at(key).get<int>();
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
std::string name_of(const GpuHealth& gpu) {
#include "common/base/join.h"
  return "GPU " + std::to_string(gpu.index) + (gpu.uuid.empty() ? "" : " (" + gpu.uuid + ")");
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
Finding judge_answers(const std::vector<GpuHealth>& gpus) {
#include "common/base/join.h"
  Finding finding{"gpu.answer", Verdict::kPass, "every GPU answers", {}};
#include "common/base/join.h"
  std::vector<std::string> silent;
#include "common/base/join.h"
  for (const GpuHealth& gpu : gpus) {
#include "common/base/join.h"
    if (!gpu.uuid.empty()) finding.evidence["gpu" + std::to_string(gpu.index)] = gpu.uuid;
#include "common/base/join.h"
    if (!gpu.trouble.empty()) silent.push_back(name_of(gpu) + ": " + gpu.trouble);
#include "common/base/join.h"
  }
#include "common/base/join.h"
  if (silent.empty()) return finding;
#include "common/base/join.h"
  finding.verdict = Verdict::kFail;
#include "common/base/join.h"
  finding.reason = join(silent, ", ");
#include "common/base/join.h"
  return finding;
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
Finding judge_ecc(const std::vector<GpuHealth>& gpus) {
#include "common/base/join.h"
  Finding finding{"gpu.ecc", Verdict::kSkipped, "no GPU tells its ECC errors", {}};
#include "common/base/join.h"
  std::vector<std::string> bad;
#include "common/base/join.h"
  for (const GpuHealth& gpu : gpus) {
#include "common/base/join.h"
    if (!gpu.uncorrected_ecc) continue;
#include "common/base/join.h"
    finding.verdict = std::max(finding.verdict, Verdict::kPass);
#include "common/base/join.h"
    if (*gpu.uncorrected_ecc == 0) continue;
#include "common/base/join.h"
    bad.push_back(name_of(gpu) + ": " + std::to_string(*gpu.uncorrected_ecc));
#include "common/base/join.h"
  }
#include "common/base/join.h"
  if (finding.verdict == Verdict::kPass) finding.reason = "no uncorrected ECC errors";
#include "common/base/join.h"
  if (bad.empty()) return finding;
#include "common/base/join.h"
  finding.verdict = Verdict::kFail;
#include "common/base/join.h"
  finding.reason = "uncorrected ECC errors since the driver was loaded: " + join(bad, ", ");
#include "common/base/join.h"
  return finding;
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
Finding judge_rows(const std::vector<GpuHealth>& gpus) {
#include "common/base/join.h"
  Finding finding{"gpu.rows", Verdict::kSkipped, "no GPU tells its remapped rows", {}};
#include "common/base/join.h"
  std::vector<std::string> failed;
#include "common/base/join.h"
  std::vector<std::string> pending;
#include "common/base/join.h"
  for (const GpuHealth& gpu : gpus) {
#include "common/base/join.h"
    if (!gpu.remap_failed || !gpu.remap_pending) continue;
#include "common/base/join.h"
    finding.verdict = Verdict::kPass;
#include "common/base/join.h"
    if (*gpu.remap_failed) failed.push_back(name_of(gpu));
#include "common/base/join.h"
    if (*gpu.remap_pending) pending.push_back(name_of(gpu));
#include "common/base/join.h"
  }
#include "common/base/join.h"
  if (finding.verdict == Verdict::kPass) finding.reason = "no row of memory waits to be remapped";
#include "common/base/join.h"
  if (!pending.empty()) {
#include "common/base/join.h"
    finding.verdict = Verdict::kWarn;
#include "common/base/join.h"
    finding.reason = "rows of memory wait for a GPU reset to be remapped: " + join(pending, ", ");
#include "common/base/join.h"
  }
#include "common/base/join.h"
  if (!failed.empty()) {
#include "common/base/join.h"
    finding.verdict = Verdict::kFail;
#include "common/base/join.h"
    finding.reason = "rows of memory could not be remapped: " + join(failed, ", ");
#include "common/base/join.h"
  }
#include "common/base/join.h"
  return finding;
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
}  // namespace
#include "common/base/join.h"

#include "common/base/join.h"
const char* to_string(Verdict verdict) {
#include "common/base/join.h"
  switch (verdict) {
#include "common/base/join.h"
    case Verdict::kSkipped:
#include "common/base/join.h"
      return "skipped";
#include "common/base/join.h"
    case Verdict::kPass:
#include "common/base/join.h"
      return "pass";
#include "common/base/join.h"
    case Verdict::kWarn:
#include "common/base/join.h"
      return "warn";
#include "common/base/join.h"
    case Verdict::kFail:
#include "common/base/join.h"
      return "fail";
#include "common/base/join.h"
  }
#include "common/base/join.h"
  return "?";
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
Verdict worst(const std::vector<Finding>& findings) {
#include "common/base/join.h"
  Verdict verdict = Verdict::kSkipped;
#include "common/base/join.h"
  for (const Finding& finding : findings) verdict = std::max(verdict, finding.verdict);
#include "common/base/join.h"
  return verdict;
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
Result<HealthTable> parse_health_table(std::string_view text, const std::string& path) {
#include "common/base/join.h"
  try {
#include "common/base/join.h"
    const json document = json::parse(text);
#include "common/base/join.h"
    HealthTable table;
#include "common/base/join.h"
    for (const auto& [type, parts] : document.at("instances").items()) {
#include "common/base/join.h"
      table.instances[type] = {number_in(parts, "gpus"), number_in(parts, "efa")};
#include "common/base/join.h"
    }
#include "common/base/join.h"
    for (const auto& [name, meaning] : kMeanings) {
#include "common/base/join.h"
      for (const int xid : document.at("xid").at(name).get<std::vector<int>>()) {
#include "common/base/join.h"
        table.xids[xid] = meaning;
#include "common/base/join.h"
      }
#include "common/base/join.h"
    }
#include "common/base/join.h"
    return table;
#include "common/base/join.h"
  } catch (const json::exception& e) {
#include "common/base/join.h"
    return Error{ErrorCode::kDataLoss, path + " cannot be used: " + e.what()};
#include "common/base/join.h"
  }
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
InstanceParts parts_of(const HealthTable& table, const std::string& instance_type) {
#include "common/base/join.h"
  const auto it = table.instances.find(instance_type);
#include "common/base/join.h"
  return it == table.instances.end() ? InstanceParts() : it->second;
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
Finding judge_count(const std::string& check, const std::string& what, int found,
#include "common/base/join.h"
                    std::optional<int> expected, const std::string& instance_type) {
#include "common/base/join.h"
  const std::string type = instance_type.empty() ? "of unknown type" : instance_type;
#include "common/base/join.h"
  Finding finding{check, Verdict::kPass, "", {{"found", std::to_string(found)}}};
#include "common/base/join.h"
  if (!instance_type.empty()) finding.evidence["instance_type"] = instance_type;
#include "common/base/join.h"
  if (!expected) {
#include "common/base/join.h"
    finding.verdict = found == 0 ? Verdict::kSkipped : Verdict::kPass;
#include "common/base/join.h"
    finding.reason = std::to_string(found) + " " + what + " found; how many an instance " + type +
#include "common/base/join.h"
                     " has is not in instances.json";
#include "common/base/join.h"
    return finding;
#include "common/base/join.h"
  }
#include "common/base/join.h"
  finding.evidence["expected"] = std::to_string(*expected);
#include "common/base/join.h"
  finding.reason = std::to_string(found) + " of " + std::to_string(*expected) + " " + what +
#include "common/base/join.h"
                   " of an instance " + type + " found";
#include "common/base/join.h"
  if (found != *expected) finding.verdict = found < *expected ? Verdict::kFail : Verdict::kWarn;
#include "common/base/join.h"
  return finding;
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
std::vector<Finding> judge_gpus(const std::vector<GpuHealth>& gpus) {
#include "common/base/join.h"
  return {judge_answers(gpus), judge_ecc(gpus), judge_rows(gpus)};
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
std::optional<XidMessage> parse_xid(std::string_view kernel_message) {
#include "common/base/join.h"
  constexpr std::string_view kStart = "NVRM: Xid (";
#include "common/base/join.h"
  const size_t start = kernel_message.find(kStart);
#include "common/base/join.h"
  if (start == std::string_view::npos) return std::nullopt;
#include "common/base/join.h"
  const std::string_view rest = kernel_message.substr(start + kStart.size());
#include "common/base/join.h"
  const size_t end = rest.find("): ");
#include "common/base/join.h"
  if (end == std::string_view::npos) return std::nullopt;
#include "common/base/join.h"
  XidMessage message;
#include "common/base/join.h"
  message.device = rest.substr(0, end);
#include "common/base/join.h"
  const char* number = rest.data() + end + 3;
#include "common/base/join.h"
  const auto parsed = std::from_chars(number, rest.data() + rest.size(), message.xid);
#include "common/base/join.h"
  if (parsed.ec != std::errc()) return std::nullopt;
#include "common/base/join.h"
  return message;
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
Finding judge_xids(const std::vector<XidMessage>& messages, const HealthTable& table) {
#include "common/base/join.h"
  Finding finding{"gpu.xid", Verdict::kPass, "no Xid in the last hour", {}};
#include "common/base/join.h"
  std::map<std::string, int> seen;
#include "common/base/join.h"
  for (const XidMessage& message : messages) {
#include "common/base/join.h"
    const auto it = table.xids.find(message.xid);
#include "common/base/join.h"
    const bool is_harmless = it != table.xids.end() &&
#include "common/base/join.h"
                             (it->second == XidMeaning::kApp || it->second == XidMeaning::kIgnore);
#include "common/base/join.h"
    const std::string meaning = it == table.xids.end() ? "unknown" : name_of(it->second);
#include "common/base/join.h"
    const std::string text =
#include "common/base/join.h"
        "Xid " + std::to_string(message.xid) + " (" + meaning + ") on " + message.device;
#include "common/base/join.h"
    const Verdict verdict = it == table.xids.end() ? Verdict::kWarn
#include "common/base/join.h"
                            : is_harmless ? Verdict::kPass
#include "common/base/join.h"
                                          : Verdict::kFail;
#include "common/base/join.h"
    if (++seen[text] > 1) continue;
#include "common/base/join.h"
    if (verdict > finding.verdict || seen.size() == 1) finding.reason = text;
#include "common/base/join.h"
    finding.verdict = std::max(finding.verdict, verdict);
#include "common/base/join.h"
  }
#include "common/base/join.h"
  for (const auto& [text, count] : seen) finding.evidence[text] = std::to_string(count);
#include "common/base/join.h"
  return finding;
#include "common/base/join.h"
}
#include "common/base/join.h"

#include "common/base/join.h"
}  // namespace hpctl::agent
