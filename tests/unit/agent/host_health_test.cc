// SPDX-License-Identifier: Apache-2.0
// Verdicts on processors, memory, clocks, file systems and interfaces; and, of all rules of the
// checks, that a healthy machine never fails and that each class of fault has its verdict and
// remedy.
#include "agent/nodecheck/core/host_health.h"

#include <gtest/gtest.h>

#include <random>

#include "agent/nodecheck/core/health.h"
#include "tests/unit/agent/shipped_table.h"

namespace hpctl::agent {
namespace {

TEST(HostHealth, ListsOfProcessors) {
  EXPECT_EQ(count_cpus("0-3,8\n"), 5);
  EXPECT_EQ(count_cpus("0"), 1);
  EXPECT_EQ(count_cpus(""), 0);
  for (const char* wrong : {"a", "3-1", "1,,2", "-1", "1-", "0-9999999", "0-1x"}) {
    EXPECT_EQ(count_cpus(wrong), std::nullopt) << wrong;
  }
}

TEST(HostHealth, LinesOfMeminfo) {
  EXPECT_EQ(find_kib("MemTotal:       16384 kB\nMemFree: 1 kB\n", "MemTotal"), 16384);
  EXPECT_EQ(find_kib("Node 1 MemTotal:  77 kB\n", "MemTotal"), 77);
  EXPECT_EQ(find_kib("MemFree: 1 kB\n", "MemTotal"), std::nullopt);
  EXPECT_EQ(find_kib("MemTotal: lots", "MemTotal"), std::nullopt);
}

TEST(HostHealth, ProcessorsAndMemoryByInstanceType) {
  const auto verdict = [](int present, int online, std::optional<int> expected) {
    return judge_cpus({present, online}, expected, "p5.48xlarge").verdict;
  };
  EXPECT_EQ(verdict(192, 192, 192), Verdict::kPass);
  EXPECT_EQ(verdict(96, 96, 192), Verdict::kPass) << "one thread per core";
  EXPECT_EQ(verdict(191, 191, 192), Verdict::kFail);
  EXPECT_EQ(verdict(192, 190, 192), Verdict::kWarn) << "somebody took two offline";
  EXPECT_EQ(verdict(7, 7, {}), Verdict::kPass);
  EXPECT_EQ(judge_cpus({}, 192, "x").verdict, Verdict::kSkipped);

  const Finding small = judge_memory(int64_t{1024} << 20, 2048, "p5.48xlarge");
  EXPECT_EQ(small.verdict, Verdict::kFail);
  EXPECT_EQ(small.remedy, Remedy::kReboot);
  EXPECT_EQ(small.reason, "1024 GiB of memory where an instance p5.48xlarge has 2048");
  EXPECT_EQ(judge_memory(int64_t{2010} << 20, 2048, "p5.48xlarge").verdict, Verdict::kPass);
  EXPECT_EQ(judge_memory({}, 2048, "p5.48xlarge").verdict, Verdict::kSkipped);
}

TEST(HostHealth, NumaNodesAreComparedWithEachOther) {
  EXPECT_EQ(judge_numa({{0, 96, 1000}, {1, 96, 990}}).verdict, Verdict::kPass);
  EXPECT_EQ(judge_numa({{0, 96, 1000}, {1, 96, 400}}).verdict, Verdict::kWarn);
  EXPECT_EQ(judge_numa({{0, 96, 1000}, {1, 0, 10}}).verdict, Verdict::kPass) << "a device's memory";
  EXPECT_EQ(judge_numa({{0, 96, 10}, {1, 0, 1000}}).verdict, Verdict::kPass);
  EXPECT_EQ(judge_numa({}).verdict, Verdict::kSkipped);
}

TEST(HostHealth, MountsThatHangAreStaleOrSlow) {
  const auto finding = [](const MountHealth& mount) { return judge_mounts({mount}, 5'000); };
  EXPECT_EQ(finding({"/fsx", "lustre", true, "", 3}).verdict, Verdict::kPass);
  EXPECT_EQ(finding({"/fsx", "lustre", true, "", 3'000}).verdict, Verdict::kWarn);
  const Finding hung = finding({"/fsx", "lustre", false, "", 0});
  EXPECT_EQ(hung.verdict, Verdict::kFail);
  EXPECT_EQ(hung.reason, "/fsx (lustre): no answer within 5000 ms");
  EXPECT_EQ(hung.remedy, Remedy::kNone) << "the server may be to blame, and all nodes see it";
  EXPECT_EQ(finding({"/home", "nfs4", true, "Stale file handle", 1}).reason,
            "/home (nfs4): Stale file handle");
  EXPECT_EQ(judge_mounts({}, 1).verdict, Verdict::kSkipped);
}

TEST(HostHealth, OnlyCountersThatGrowCount) {
  const CounterSamples samples{{{"a drops", 1'000'000}, {"b drops", 5}, {"c drops", 9}},
                               {{"a drops", 1'000'000}, {"b drops", 505}, {"c drops", 1}},
                               0.5};
  const Finding finding = judge_rates("efa.rates", samples, 100);
  EXPECT_EQ(finding.verdict, Verdict::kWarn);
  EXPECT_EQ(finding.reason, "errors are being counted: b drops 1000/s");
  EXPECT_EQ(judge_rates("efa.rates", samples, 2'000).verdict, Verdict::kPass);
  EXPECT_EQ(judge_rates("efa.rates", {}, 1).verdict, Verdict::kSkipped);
}

// A synthetic node of each class of fault: which finding, its verdict, what mends it.
struct FaultClass {
  const char* name;
  Finding finding;
  const char* check;
  Verdict verdict;
  Remedy remedy;
};

std::vector<GpuHealth> gpus(size_t count) {
  std::vector<GpuHealth> all;
  for (size_t i = 0; i < count; ++i) {
    all.push_back(
        {static_cast<int>(i), "GPU-" + std::to_string(i), "", 0, false, false, 1, 18, 18});
  }
  return all;
}

template <typename Change>
std::vector<GpuHealth> with_bad_gpu(Change change) {
  auto all = gpus(8);
  change(all[3]);
  return all;
}

Finding finding_of(const std::vector<Finding>& findings, const std::string& check) {
  for (const Finding& finding : findings) {
    if (finding.check == check) return finding;
  }
  ADD_FAILURE() << check << " is not answered";
  return {};
}

TEST(FaultClasses, EachHasItsVerdictAndItsRemedy) {
  const HealthTable table = shipped_table();
  const std::string p5 = "p5.48xlarge";
  const auto lost = with_bad_gpu([](GpuHealth& gpu) { gpu.trouble = "GPU is lost"; });
  const auto ecc = with_bad_gpu([](GpuHealth& gpu) { gpu.uncorrected_ecc = 3; });
  const auto rows = with_bad_gpu([](GpuHealth& gpu) { gpu.remap_failed = true; });
  const auto pending = with_bad_gpu([](GpuHealth& gpu) { gpu.remap_pending = true; });
  const auto hot = with_bad_gpu([](GpuHealth& gpu) { gpu.slowdown = 0x40; });
  const auto warm = with_bad_gpu([](GpuHealth& gpu) { gpu.slowdown = 0x20; });
  const auto unlinked = with_bad_gpu([](GpuHealth& gpu) { gpu.nvlinks_up = 17; });
  const auto xid = [&](int number) { return judge_xids({{number, "PCI:0"}}, table); };
  const auto kernel = [](const char* text) { return judge_kernel_messages({"ok", text}); };
  const std::vector<FaultClass> classes = {
      {"a GPU is missing", judge_count("gpu.count", "GPUs", 7, 8, p5), "gpu.count", Verdict::kFail,
       Remedy::kReboot},
      {"a GPU is silent", finding_of(judge_gpus(lost), "gpu.answer"), "gpu.answer", Verdict::kFail,
       Remedy::kReboot},
      {"uncorrected ECC", finding_of(judge_gpus(ecc), "gpu.ecc"), "gpu.ecc", Verdict::kFail,
       Remedy::kReboot},
      {"rows not remapped", finding_of(judge_gpus(rows), "gpu.rows"), "gpu.rows", Verdict::kFail,
       Remedy::kReplace},
      {"rows pending", finding_of(judge_gpus(pending), "gpu.rows"), "gpu.rows", Verdict::kWarn,
       Remedy::kNone},
      {"a GPU is too hot", judge_slowdowns(hot, true), "gpu.clocks", Verdict::kFail,
       Remedy::kReplace},
      {"it was so for a moment", judge_slowdowns(hot, false), "gpu.clocks", Verdict::kWarn,
       Remedy::kNone},
      {"a GPU is warm", judge_slowdowns(warm, true), "gpu.clocks", Verdict::kWarn, Remedy::kNone},
      {"an NVLink is down", judge_nvlinks(unlinked, 18), "gpu.nvlink", Verdict::kFail,
       Remedy::kReboot},
      {"one of an unknown type", judge_nvlinks(unlinked, {}), "gpu.nvlink", Verdict::kFail,
       Remedy::kReboot},
      {"all NVLinks of all are fewer", judge_nvlinks(gpus(8), 20), "gpu.nvlink", Verdict::kFail,
       Remedy::kReboot},
      {"fallen off the bus", xid(79), "gpu.xid", Verdict::kFail, Remedy::kReboot},
      {"to be isolated", xid(54), "gpu.xid", Verdict::kFail, Remedy::kReplace},
      {"the program's Xid", xid(31), "gpu.xid", Verdict::kPass, Remedy::kNone},
      {"an unknown Xid", xid(777), "gpu.xid", Verdict::kWarn, Remedy::kNone},
      {"an EFA device is missing", judge_count("efa.devices", "EFA devices", 31, 32, p5),
       "efa.devices", Verdict::kFail, Remedy::kReboot},
      {"TCP in place of EFA", judge_fallback("tcp;ofi_rxm", 32, p5), "efa.fallback", Verdict::kFail,
       Remedy::kReplace},
      {"TCP where there is no EFA", judge_fallback("tcp;ofi_rxm", 0, "g6.xlarge"), "efa.fallback",
       Verdict::kSkipped, Remedy::kNone},
      {"packets are lost", judge_rates("efa.rates", {{{"a", 0}}, {{"a", 900}}, 0.5}, 100),
       "efa.rates", Verdict::kWarn, Remedy::kNone},
      {"no cable", judge_interfaces({{"eth0", true, true}, {"eth1", true, false}}), "net.links",
       Verdict::kWarn, Remedy::kNone},
      {"half of the memory", judge_memory(int64_t{1'024} << 20, 2'048, p5), "host.memory",
       Verdict::kFail, Remedy::kReboot},
      {"processors are missing", judge_cpus({180, 180}, 192, p5), "host.cpus", Verdict::kFail,
       Remedy::kReboot},
      {"uneven memory", judge_numa({{0, 96, 1'000}, {1, 96, 100}}), "host.numa", Verdict::kWarn,
       Remedy::kNone},
      {"memory is broken", judge_memory_errors({{"mc0", 0, 4}, {"mc1", 1, 0}}), "host.edac",
       Verdict::kFail, Remedy::kReplace},
      {"memory becomes broken", judge_memory_errors({{"mc0", 0, 90'000}}), "host.edac",
       Verdict::kWarn, Remedy::kNone},
      {"a machine check", kernel("mce: [Hardware Error]: Machine check events logged"),
       "host.kernel", Verdict::kWarn, Remedy::kNone},
      {"an uncorrected one", kernel("{1}[Hardware Error]: event severity: fatal"), "host.kernel",
       Verdict::kFail, Remedy::kReplace},
      {"a page is lost", kernel("Memory failure: 0x12345: recovery action for dirty page"),
       "host.kernel", Verdict::kFail, Remedy::kReboot},
      {"a disk gives up", kernel("EXT4-fs (nvme1n1): Remounting filesystem read-only"),
       "host.kernel", Verdict::kFail, Remedy::kReboot},
      {"no service keeps the clock", judge_timekeeping({false, 16'000'000}), "host.clock",
       Verdict::kWarn, Remedy::kNone},
      {"the clock drifts", judge_timekeeping({true, 3'000'000}), "host.clock", Verdict::kWarn,
       Remedy::kNone},
      {"a mount hangs", judge_mounts({{"/fsx", "lustre", false, "", 0}}, 5'000), "fs.mounts",
       Verdict::kFail, Remedy::kNone},
      {"a processor errs", judge_burn({96, 1, 1U << 30, 0, 30}), "host.burn", Verdict::kFail,
       Remedy::kReplace},
      {"memory forgets", judge_burn({96, 0, 1U << 30, 2, 30}), "host.burn", Verdict::kFail,
       Remedy::kReplace},
  };
  for (const FaultClass& fault : classes) {
    EXPECT_EQ(fault.finding.check, fault.check) << fault.name;
    EXPECT_EQ(to_string(fault.finding.verdict), std::string(to_string(fault.verdict)))
        << fault.name << ": " << fault.finding.reason;
    EXPECT_EQ(to_string(remedy_of({fault.finding})), std::string(to_string(fault.remedy)))
        << fault.name;
    EXPECT_FALSE(fault.finding.reason.empty()) << fault.name;
  }
}

// What differs from machine to machine and from moment to moment while nothing is wrong.
class HealthyReadings {
 public:
  explicit HealthyReadings(uint32_t seed) : random_(seed) {}

  std::vector<Finding> look(const HealthTable& table) {
    std::vector<std::string> types = {""};
    for (const auto& [type, parts] : table.instances) types.push_back(type);
    const std::string& type = types[below(types.size())];
    const InstanceParts parts = parts_of(table, type);
    std::vector<Finding> findings = judge_gpus(gpus_of(parts));
    const auto add = [&](Finding finding) { findings.push_back(std::move(finding)); };
    add(judge_count("gpu.count", "GPUs", parts.gpus.value_or(below(9)), parts.gpus, type));
    add(judge_count("efa.devices", "EFA devices", parts.efa.value_or(below(5)), parts.efa, type));
    add(judge_slowdowns(gpus_of(parts), below(2) == 0));
    add(judge_nvlinks(gpus_of(parts), parts.nvlinks));
    add(judge_xids(xids(), table));
    add(judge_fallback(parts.efa.value_or(0) > 0 ? "efa"
                       : below(2) == 0           ? "tcp;ofi_rxm"
                                                 : "",
                       parts.efa, type));
    add(judge_rates("efa.rates", counters(), 100));
    const int threads = parts.cpus.value_or(1 + below(256)) / (below(3) == 0 ? 2 : 1);
    add(judge_cpus({threads, threads - (below(4) == 0 ? below(2) : 0)}, parts.cpus, type));
    const int64_t gib = parts.memory_gib.value_or(4 + below(2'000));
    const int64_t kib = (gib << 20) / 1'000 * (920 + below(80));
    add(judge_memory(below(9) == 0 ? std::nullopt : std::optional(kib), parts.memory_gib, type));
    add(judge_numa({{0, threads, kib / 2 - below(1'000)}, {1, threads, kib / 2}}));
    add(judge_memory_errors({{"mc0", 0, static_cast<uint64_t>(below(2'000))}}));
    add(judge_kernel_messages(kernel_log()));
    add(judge_timekeeping({below(5) != 0, below(2'000'000)}));
    add(judge_mounts({{"/fsx", "lustre", true, "", static_cast<double>(below(4'000))}}, 5'000));
    add(judge_interfaces({{"eth0", true, true}, {"eth1", below(2) == 0, below(2) == 0}}));
    add(judge_burn({threads, 0, 1U << 30, 0, 30}));
    return findings;
  }

 private:
  int below(size_t limit) {
    return static_cast<int>(std::uniform_int_distribution<size_t>(0, limit - 1)(random_));
  }
  std::vector<GpuHealth> gpus_of(const InstanceParts& parts) {
    auto all = gpus(static_cast<size_t>(parts.gpus.value_or(below(9))));
    // What the driver tells depends on its age; a node has one.
    const bool old = below(6) == 0;
    const uint64_t harmless[] = {0, 0x1, 0x2, 0x4, 0x10, 0x20, 0x100, 0x5};
    for (GpuHealth& gpu : all) {
      gpu.nvlinks = gpu.nvlinks_up = parts.nvlinks.value_or(0);
      gpu.slowdown = harmless[below(8)];
      gpu.remap_pending = below(30) == 0;
      if (!old) continue;
      gpu.uncorrected_ecc = std::nullopt;
      gpu.remap_failed = gpu.remap_pending = std::nullopt;
      gpu.slowdown = std::nullopt;
      gpu.nvlinks = gpu.nvlinks_up = std::nullopt;
    }
    return all;
  }
  std::vector<XidMessage> xids() {
    std::vector<XidMessage> all;
    const int harmless[] = {13, 31, 43, 63, 92, 94, 121, 126, 700};
    for (int i = below(4); i > 0; --i) all.push_back({harmless[below(9)], "PCI:0000:10:00"});
    return all;
  }
  CounterSamples counters() {
    CounterSamples samples{{}, {}, 0.5};
    for (int i = below(32); i > 0; --i) {
      const std::string name = "rdmap" + std::to_string(i) + " rx_drops";
      samples.before[name] = static_cast<uint64_t>(below(1'000'000));
      samples.after[name] = samples.before[name] + static_cast<uint64_t>(below(40));
    }
    return samples;
  }
  std::vector<std::string> kernel_log() {
    const char* usual[] = {"usb 1-1: new device",
                           "nvidia-nvlink: Nvlink Core is being initialized",
                           "EXT4-fs (nvme0n1p1): mounted filesystem with ordered data mode",
                           "Out of memory: Killed process 77 (python)",
                           "mce: CPU0: Thermal monitoring enabled (TM1)",
                           "{1}[Hardware Error]: event severity: corrected",
                           "NVRM: loading NVIDIA UNIX Open Kernel Module"};
    std::vector<std::string> log;
    for (int i = below(20); i > 0; --i) log.emplace_back(usual[below(7)]);
    return log;
  }

  std::mt19937 random_;
};

TEST(HealthyReadings, ThousandsOfThemNeverFail) {
  const HealthTable table = shipped_table();
  for (uint32_t seed = 0; seed < 5'000; ++seed) {
    for (const Finding& finding : HealthyReadings(seed).look(table)) {
      ASSERT_NE(finding.verdict, Verdict::kFail)
          << seed << ": " << finding.check << ": " << finding.reason;
      ASSERT_EQ(remedy_of({finding}), Remedy::kNone);
      ASSERT_FALSE(finding.reason.empty()) << finding.check;
    }
  }
}

}  // namespace
}  // namespace hpctl::agent
