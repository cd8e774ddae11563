// SPDX-License-Identifier: Apache-2.0
// Verdicts and variables from what was found, and the data files that ship with the programs.
#include "agent/nodecheck/core/health.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "agent/nodecheck/core/environment_rules.h"
#include "common/base/file.h"
#include "tests/unit/agent/shipped_table.h"

namespace hpctl::agent {
namespace {

std::string deployed(const std::string& name) {
  const auto text = read_file(std::string(HPCTL_SOURCE) + "/deploy/" + name);
  EXPECT_TRUE(text.ok()) << text.error().message;
  return text.ok() ? *text : "";
}

std::vector<EnvironmentRule> shipped_rules() {
  const auto rules = parse_environment_rules(deployed("environment.json"), "environment.json");
  EXPECT_TRUE(rules.ok()) << rules.error().message;
  return rules.ok() ? *rules : std::vector<EnvironmentRule>();
}

using Variables = std::map<std::string, std::string>;

TEST(EnvironmentRules, ACurrentStackNeedsLittle) {
  const InstalledStack current{Version{1, 22}, Version{1, 9, 2}};
  const Variables p5 = environment_for(shipped_rules(), "p5.48xlarge", current);
  EXPECT_EQ(p5.at("FI_EFA_USE_HUGE_PAGE"), "0");
  EXPECT_EQ(p5.at("NCCL_SOCKET_IFNAME"), "^docker,lo,veth");
  for (const char* old : {"FI_EFA_USE_DEVICE_RDMA", "FI_PROVIDER", "NCCL_PROTO"}) {
    EXPECT_FALSE(p5.contains(old)) << old;
  }
  EXPECT_EQ(environment_for(shipped_rules(), "p5.48xlarge", {}), p5)
      << "a version that cannot be found out counts as current";
}

TEST(EnvironmentRules, OlderStacksNeedMore) {
  const auto rules = shipped_rules();
  Variables p4 = environment_for(rules, "p4d.24xlarge", {Version{1, 18}, Version{1, 6}});
  EXPECT_EQ(p4.at("FI_EFA_USE_DEVICE_RDMA"), "1");
  EXPECT_FALSE(p4.contains("FI_PROVIDER"));
  p4 = environment_for(rules, "p4d.24xlarge", {Version{1, 16}, Version{1, 5}});
  EXPECT_EQ(p4.at("FI_PROVIDER"), "efa");
  EXPECT_EQ(p4.at("NCCL_PROTO"), "simple");
}

TEST(EnvironmentRules, OtherMachinesGetOthersOrNone) {
  const auto rules = shipped_rules();
  const Variables g5 = environment_for(rules, "g5.12xlarge", {});
  EXPECT_EQ(g5.at("NCCL_SHM_USE_CUDA_MEMCPY"), "1");
  EXPECT_FALSE(g5.contains("FI_EFA_USE_HUGE_PAGE")) << "it has no EFA";
  EXPECT_TRUE(environment_for(rules, "m5.large", {}).empty());
  EXPECT_TRUE(environment_for(rules, "", {}).empty()) << "no rule for a machine nobody knows";
}

TEST(EnvironmentRules, ADamagedFileIsSaidSo) {
  for (const char* text : {"", "{}", "[1]", "{\"rules\": [{}]}", "{\"rules\": 3}",
                           R"({"rules": [{"instances": ["a"], "set": {"A": 1}}]})",
                           R"({"rules": [{"instances": ["a"], "ofi_nccl": "~1", "set": {}}]})"}) {
    const auto rules = parse_environment_rules(text, "/x/environment.json");
    ASSERT_FALSE(rules.ok()) << text;
    EXPECT_NE(rules.error().message.find("/x/environment.json cannot be used"), std::string::npos);
  }
}

TEST(EnvironmentRules, Versions) {
  EXPECT_EQ(parse_version("1.9.2-aws"), (Version{1, 9, 2}));
  EXPECT_EQ(parse_version("2"), Version{2});
  EXPECT_EQ(parse_version("1."), Version{1});
  EXPECT_EQ(parse_version("v1"), std::nullopt);
  EXPECT_EQ(parse_version(""), std::nullopt);
}

TEST(Health, CountsAreJudgedByInstanceType) {
  const HealthTable table = shipped_table();
  const auto verdict = [&](const std::string& type, int found) {
    return judge_count("gpu.count", "GPUs", found, parts_of(table, type).gpus, type).verdict;
  };
  EXPECT_EQ(verdict("p5.48xlarge", 8), Verdict::kPass);
  EXPECT_EQ(verdict("p5.48xlarge", 7), Verdict::kFail);
  EXPECT_EQ(verdict("p5.48xlarge", 9), Verdict::kWarn);
  EXPECT_EQ(verdict("x9.new", 4), Verdict::kPass) << "an unknown type is not judged";
  EXPECT_EQ(verdict("x9.new", 0), Verdict::kSkipped);
  const Finding finding = judge_count("efa.devices", "EFA devices", 31,
                                      parts_of(table, "p5.48xlarge").efa, "p5.48xlarge");
  EXPECT_EQ(finding.reason, "31 of 32 EFA devices of an instance p5.48xlarge found");
  EXPECT_EQ(finding.evidence.at("expected"), "32");
}

TEST(Health, EveryGpuCounts) {
  GpuHealth good{0, "GPU-a", "", 0, false, false};
  GpuHealth bad = good;
  bad.index = 1;
  bad.uuid = "GPU-b";
  const auto verdicts = [](const std::vector<GpuHealth>& gpus) {
    std::string text;
    for (const Finding& finding : judge_gpus(gpus)) {
      text += finding.check + "=" + to_string(finding.verdict) + " ";
    }
    return text;
  };
  EXPECT_EQ(verdicts({good, bad}), "gpu.answer=pass gpu.ecc=pass gpu.rows=pass ");
  bad.uncorrected_ecc = 2;
  bad.remap_pending = true;
  EXPECT_EQ(verdicts({good, bad}), "gpu.answer=pass gpu.ecc=fail gpu.rows=warn ");
  EXPECT_NE(judge_gpus({good, bad})[1].reason.find("GPU 1 (GPU-b): 2"), std::string::npos);
  bad.remap_failed = true;
  bad.trouble = "GPU is lost";
  EXPECT_EQ(verdicts({good, bad}), "gpu.answer=fail gpu.ecc=fail gpu.rows=fail ");
  EXPECT_EQ(verdicts({{0, "GPU-a", "", {}, {}, {}}}),
            "gpu.answer=pass gpu.ecc=skipped gpu.rows=skipped ")
      << "what a GPU does not tell is not a pass";
}

TEST(Health, XidsByWhatTheyMean) {
  const HealthTable table = shipped_table();
  const auto lost = parse_xid(
      "NVRM: Xid (PCI:0000:53:00): 79, pid=1234, name=python, GPU has fallen off the bus.");
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->xid, 79);
  EXPECT_EQ(lost->device, "PCI:0000:53:00");
  for (const char* other : {"NVRM: loading", "NVRM: Xid (PCI", "NVRM: Xid (PCI:0): x", ""}) {
    EXPECT_FALSE(parse_xid(other)) << other;
  }
  const XidMessage app{31, "PCI:0000:10:00"};
  const XidMessage fresh{999, "PCI:0000:10:00"};
  EXPECT_EQ(judge_xids({}, table).verdict, Verdict::kPass);
  EXPECT_EQ(judge_xids({app}, table).verdict, Verdict::kPass);
  EXPECT_EQ(judge_xids({app, fresh}, table).verdict, Verdict::kWarn);
  const Finding finding = judge_xids({app, *lost, *lost, fresh}, table);
  EXPECT_EQ(finding.verdict, Verdict::kFail);
  EXPECT_EQ(finding.reason, "Xid 79 (reboot) on PCI:0000:53:00");
  EXPECT_EQ(finding.evidence.at(finding.reason), "2");
}

TEST(Health, TheWorstFindingIsTheVerdict) {
  EXPECT_EQ(worst({}), Verdict::kSkipped);
  EXPECT_EQ(worst({{"a", Verdict::kSkipped, "", {}}, {"b", Verdict::kPass, "", {}}}),
            Verdict::kPass);
  EXPECT_EQ(worst({{"a", Verdict::kFail, "", {}}, {"b", Verdict::kWarn, "", {}}}), Verdict::kFail);
}

}  // namespace
}  // namespace hpctl::agent
