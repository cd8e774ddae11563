// SPDX-License-Identifier: Apache-2.0
// hpagent check, the real program, on machines that a directory describes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "agent/nodecheck/machine_environment.h"
#include "agent/nodecheck/probes/burn.h"
#include "common/base/file.h"
#include "common/base/host.h"
#include "common/base/json.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::agent {
namespace {

using nlohmann::json;

class Check : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const std::string full = root_.path() + path;
    ASSERT_TRUE(make_directories(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(write_file_atomic(full, text).ok());
  }
  void be(const std::string& instance_type) {
    put("/sys/devices/virtual/dmi/id/sys_vendor", "Amazon EC2\n");
    put("/sys/devices/virtual/dmi/id/product_name", instance_type + "\n");
  }
  void install_nvml() {
    const std::string library = root_.path() + "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1";
    ASSERT_TRUE(make_directories(library.substr(0, library.rfind('/'))).ok());
    std::filesystem::create_symlink(HPCTL_STUB_NVML, library);
  }
  void add_efa(const std::string& name, const std::string& state) {
    const std::string device = "/sys/class/infiniband/" + name;
    put(device + "/device/vendor", "0x1d0f\n");
    put(device + "/ports/1/state", state + "\n");
    put(device + "/ports/1/hw_counters/rx_drops", "3\n");
  }
  testing::CommandResult run(const std::vector<std::string>& arguments,
                             const std::string& gpus = "") const {
    std::vector<std::string> argv = {HPCTL_HPAGENT, "check"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return testing::run_command(argv, {"HPCTL_SYSROOT=" + root_.path(), "STUB_NVML=" + gpus});
  }
  // Every file of the machine, with its contents.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_.path())) {
      if (!entry.is_regular_file()) continue;
      const auto text = read_file(entry.path().string());
      all[entry.path().string()] = text.ok() ? *text : text.error().message;
    }
    return all;
  }
  json document(const std::string& check, int exit_code, const std::string& gpus = "") const {
    const auto result = run({check, "--json"}, gpus);
    EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
    json parsed = json::parse(result.out, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << result.out;
    return parsed;
  }
  // "gpu.count=fail ..." in the order of the findings.
  static std::string verdicts(const json& document) {
    std::string text;
    for (const json& finding : document["findings"]) {
      EXPECT_FALSE(finding["reason"].get<std::string>().empty()) << finding;
      text +=
          finding["check"].get<std::string>() + "=" + finding["verdict"].get<std::string>() + " ";
    }
    return text;
  }

  TemporaryDirectory root_;
};

TEST_F(Check, AMachineWithoutGpusSaysWhatItSkips) {
  const json found = document("gpu", 0);
  EXPECT_EQ(found["verdict"], "skipped");
  EXPECT_EQ(verdicts(found),
            "gpu.driver=skipped gpu.count=skipped gpu.answer=skipped gpu.ecc=skipped "
            "gpu.rows=skipped gpu.clocks=skipped gpu.nvlink=skipped gpu.xid=skipped ");
}

// Debian's installer writes such a line, and Gloo told the others 127.0.1.1.
TEST_F(Check, OwnNameThatIsALoopbackIsAWarning) {
  const auto own_name = [&] {
    const json answer = document("net", 0);
    for (const json& finding : answer["findings"]) {
      if (finding["check"] == "net.name") return finding;
    }
    return json();
  };
  put("/etc/hosts", "127.0.0.1 localhost\n");
  EXPECT_EQ(own_name().value("verdict", ""), "pass");
  put("/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 " + host_name() + "\n");
  EXPECT_EQ(own_name().value("verdict", ""), "warn");
  EXPECT_NE(own_name().value("reason", "").find("127.0.1.1"), std::string::npos);
}

TEST_F(Check, GpusAgainstTheInstanceType) {
  be("p5.48xlarge");
  EXPECT_EQ(document("gpu", 1)["findings"][0]["verdict"], "fail") << "it has GPUs and no driver";
  install_nvml();
  put("/proc/uptime", "7200.00 1.0\n");
  put("/dev/kmsg", "4,1,10000000,-;NVRM: Xid (PCI:0000:53:00): 79, pid=1, old\n");
  json found = document("gpu", 0, "gggggggg");
  EXPECT_EQ(verdicts(found),
            "gpu.driver=pass gpu.count=pass gpu.answer=pass gpu.ecc=pass gpu.rows=pass "
            "gpu.clocks=pass gpu.nvlink=pass gpu.xid=pass ");
  EXPECT_EQ(found["instance_type"], "p5.48xlarge");
  EXPECT_EQ(found["findings"][0]["evidence"]["driver"], "570.86");
  EXPECT_EQ(document("gpu", 3, "ggggggg")["verdict"], "fail") << "seven of eight";
  found = document("gpu", 3, "gggglgge");
  EXPECT_EQ(found["findings"][2]["reason"], "GPU 4: GPU is lost");
  EXPECT_EQ(found["findings"][3]["verdict"], "fail");
  EXPECT_EQ(found["remedy"], "reboot") << "all that fails";
  EXPECT_EQ(document("gpu", 0, "gggggggp")["verdict"], "warn");
  found = document("gpu", 3, "!");
  EXPECT_EQ(found["findings"][0]["reason"], "NVML does not start: Driver Not Loaded");
}

TEST_F(Check, XidsOfTheLastHourCount) {
  be("g6.xlarge");
  install_nvml();
  put("/proc/uptime", "7200.00 1.0\n");
  put("/dev/kmsg",
      "6,1,3600000001,-;NVRM: Xid (PCI:0000:53:00): 79, pid=1, GPU has fallen off the bus.\n"
      " SUBSYSTEM=pci\n6,2,7100000000,-;usb 1-1: new device\n");
  const json found = document("gpu", 3, "g");
  EXPECT_EQ(found["findings"].back()["reason"], "Xid 79 (reboot) on PCI:0000:53:00");
  EXPECT_EQ(found["findings"].back()["remedy"], "reboot");
  put("/dev/kmsg",
      "6,1,3600000001,-;NVRM: Xid (PCI:0000:53:00): 79, pid=1\n"
      "6,2,3600000002,-;NVRM: Xid (PCI:0000:53:00): 54, pid=1\n");
  EXPECT_EQ(document("gpu", 1, "g")["remedy"], "replace") << "a reboot mends only the one";
}

TEST_F(Check, EfaDevicesPortsAndCounters) {
  be("p4d.24xlarge");
  EXPECT_EQ(document("efa", 3)["findings"][0]["reason"],
            "0 of 4 EFA devices of an instance p4d.24xlarge found");
  for (const char* name : {"rdmap0s0", "rdmap1s0", "rdmap2s0"}) add_efa(name, "4: ACTIVE");
  add_efa("rdmap3s0", "1: DOWN");
  put("/sys/class/infiniband/mlx5_0/device/vendor", "0x15b3\n");
  const json found = document("efa", 1);
  EXPECT_EQ(found["findings"][0]["verdict"], "pass");
  EXPECT_EQ(found["findings"][1]["reason"], "not active: rdmap3s0 1: DOWN");
  EXPECT_EQ(found["remedy"], "replace");
  EXPECT_EQ(found["findings"][2]["evidence"]["rx_drops"], "12");
  EXPECT_FALSE(found["findings"][2]["evidence"].contains("retrans_timeout_events"))
      << "a counter that the driver lacks is not zero";
  EXPECT_EQ(found["findings"][3]["check"], "efa.provider");
}

TEST_F(Check, ClocksAndNvlinksOfGpus) {
  be("p5.48xlarge");
  install_nvml();
  put("/proc/uptime", "7200.00 1.0\n");
  put("/dev/kmsg", "");
  json found = document("gpu", 1, "gggggggt");
  EXPECT_EQ(found["remedy"], "replace");
  EXPECT_EQ(found["findings"][5]["reason"],
            "held down by the hardware (temperature or power): GPU 7 (GPU-7)");
  EXPECT_EQ(document("gpu", 0, "gggggggb")["findings"][5]["verdict"], "pass")
      << "only for a moment";
  found = document("gpu", 3, "gggngggg");
  EXPECT_EQ(found["findings"][6]["reason"], "NVLinks that are up: GPU 3 (GPU-3): 17 of 18");
  EXPECT_EQ(document("gpu", 3, "oooooooo")["findings"][6]["verdict"], "fail") << "it has none";
  be("g5.48xlarge");
  EXPECT_EQ(document("gpu", 0, "oooooooo")["findings"][6]["verdict"], "skipped");
}

// A p5 as recorded, with what differs from the healthy one.
TEST_F(Check, ARecordedHost) {
  be("p5.48xlarge");
  const auto record = [&](int cpus, int64_t gib, const std::string& kernel_message) {
    put("/sys/devices/system/cpu/present", "0-" + std::to_string(cpus - 1) + "\n");
    put("/sys/devices/system/cpu/online", "0-" + std::to_string(cpus - 1) + "\n");
    put("/proc/meminfo", "MemTotal:       " + std::to_string(gib << 20) + " kB\nMemFree: 1 kB\n");
    for (const std::string node : {"0", "1"}) {
      const std::string directory = "/sys/devices/system/node/node" + node;
      put(directory + "/cpulist", "0-95\n");
      put(directory + "/meminfo",
          "Node " + node + " MemTotal:   " + std::to_string(gib << 19) + " kB\n");
    }
    put("/sys/devices/system/edac/mc/mc0/ue_count", "0\n");
    put("/sys/devices/system/edac/mc/mc0/ce_count", "12\n");
    put("/proc/uptime", "7200.00 1.0\n");
    put("/dev/kmsg", "6,1,3700000000,-;" + kernel_message + "\n");
  };
  record(192, 2'000, "usb 1-1: new device");
  EXPECT_EQ(verdicts(document("host", 0)),
            "host.cpus=pass host.memory=pass host.numa=pass host.edac=pass host.kernel=pass "
            "host.clock=skipped ");
  record(192, 1'500, "usb 1-1: new device");
  EXPECT_EQ(document("host", 3)["findings"][1]["verdict"], "fail");
  record(190, 2'000, "{3}[Hardware Error]: event severity: fatal");
  const json found = document("host", 1);
  EXPECT_EQ(found["remedy"], "replace") << "a reboot mends only the processors";
  EXPECT_EQ(found["findings"][0]["reason"],
            "190 of 192 processors of an instance p5.48xlarge found");
  EXPECT_EQ(found["findings"][4]["reason"], "{3}[Hardware Error]: event severity: fatal");
}

TEST_F(Check, NetworkFileSystems) {
  put("/proc/self/mounts", "/dev/sda / ext4 rw 0 0\n10.0.0.1@tcp:/x /fsx lustre rw 0 0\n");
  put("/fsx/data", "here\n");
  EXPECT_EQ(document("fs", 0)["findings"][0]["verdict"], "pass");
  put("/proc/self/mounts", "10.0.0.1@tcp:/x /fsx lustre rw 0 0\nx:/ /gone nfs4 rw 0 0\n");
  const json found = document("fs", 1);
  EXPECT_EQ(found["findings"][0]["reason"], "/gone (nfs4): No such file or directory");
  EXPECT_EQ(found["remedy"], "none") << "whoever serves it may be to blame";
}

// Somebody's errors go on while the check looks.
TEST_F(Check, CountersThatGrow) {
  be("p4d.24xlarge");
  for (const char* name : {"rdmap0s0", "rdmap1s0", "rdmap2s0", "rdmap3s0"}) {
    add_efa(name, "4: ACTIVE");
  }
  const auto rates = [&] {
    const json found = document("efa", 1);  // there is no libfabric
    return found["findings"].back();
  };
  EXPECT_EQ(rates()["check"], "efa.rates");
  EXPECT_EQ(rates()["verdict"], "pass");
  std::atomic<bool> over{false};
  std::thread errors([&] {
    const std::string next = root_.path() + "/next";
    for (int drops = 4; !over; drops += 1'000) {
      // In its place at once, so that a reader sees one number or the next; and not synced, which
      // takes as long as others write to the disk: the check looks for half a second.
      std::ofstream(next) << drops;
      std::filesystem::rename(
          next, root_.path() + "/sys/class/infiniband/rdmap2s0/ports/1/hw_counters/rx_drops");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // errors come at a rate
    }
  });
  const json growing = rates();
  over = true;
  errors.join();
  EXPECT_EQ(growing["verdict"], "warn") << growing;
  EXPECT_NE(growing["reason"].get<std::string>().find("rdmap2s0 rx_drops"), std::string::npos);
}

TEST_F(Check, ALightCheckTransfersAndWatchesNothing) {
  be("p4d.24xlarge");
  for (const char* name : {"rdmap0s0", "rdmap1s0", "rdmap2s0", "rdmap3s0"}) {
    add_efa(name, "4: ACTIVE");
  }
  const auto result = run({"efa", "--light"});
  EXPECT_EQ(result.out.find("efa.rates"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("efa.ports"), std::string::npos) << result.out;
  EXPECT_EQ(run({"efa", "--light", "--deep"}).exit_code, 2);
  EXPECT_EQ(run({"efa", "--deadline", "60"}).exit_code, 2) << "only of a deep one";
}

TEST(Burn, ThisMachineComputesAndKeepsWhatItShould) {
  const BurnResult result =
      burn({std::chrono::milliseconds(200), std::chrono::milliseconds(5'000), 64U << 20});
  EXPECT_GE(result.threads, 1);
  EXPECT_EQ(result.wrong_threads, 0);
  EXPECT_EQ(result.wrong_words, 0U);
  EXPECT_GT(result.memory_bytes, 0U);
  EXPECT_EQ(judge_burn(result).verdict, Verdict::kPass);
}

TEST_F(Check, AHangingDriverIsAFindingToo) {
  install_nvml();
  const auto result = run({"gpu", "--deadline", "1"}, "h");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.out.find("fail: gpu.deadline: no answer within 1 s"), std::string::npos)
      << result.out;
}

TEST_F(Check, ATransferOverTheRealProvider) {
  // libfabric's providers keep some bytes when they are unloaded; the leak has no name to suppress.
  const auto result =
      testing::run_command({HPCTL_HPAGENT, "check", "net", "--json"},
                           {"FI_PROVIDER=tcp", "HPCTL_SYSROOT=", "ASAN_OPTIONS=detect_leaks=0"});
  const json found = json::parse(result.out, nullptr, false);
  ASSERT_FALSE(found.is_discarded()) << result.out << result.err;
  const auto finding = [&](const std::string& check) {
    for (const json& one : found["findings"]) {
      if (one["check"] == check) return one;
    }
    return json();
  };
  const json provider = finding("net.provider");
  ASSERT_FALSE(provider.is_null()) << result.out;
  if (provider["verdict"] == "skipped") GTEST_SKIP() << provider["reason"];
  const json transfer = finding("net.transfer");
  ASSERT_FALSE(transfer.is_null()) << result.out;
  EXPECT_EQ(transfer["verdict"], "pass") << transfer;
  const auto wrong = testing::run_command({HPCTL_HPAGENT, "check", "net"},
                                          {"FI_PROVIDER=nonsense", "HPCTL_SYSROOT="});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out;
}

// A check that cannot look is not one that has found nothing: what is to be there and cannot be
// asked fails, and what would need more rights is at least a warning.
TEST_F(Check, WhatCannotBeAskedDoesNotPass) {
  be("p5.48xlarge");
  EXPECT_EQ(document("gpu", 1)["verdict"], "fail") << "no driver library where there must be GPUs";
  EXPECT_EQ(document("efa", 3)["verdict"], "fail") << "no device where there must be some";
  install_nvml();
  EXPECT_EQ(document("gpu", 3, "!")["verdict"], "fail") << "the library is there, the driver not";
  const json found = document("gpu", 0, "gggggggg");
  EXPECT_EQ(found["verdict"], "warn") << "no kernel log to read";
  EXPECT_EQ(found["findings"].back()["check"], "gpu.xid");
  EXPECT_EQ(found["findings"].back()["verdict"], "warn");
}

// Of NVML the program can name only functions that read, and it leaves every file as it was.
TEST_F(Check, ALookChangesNoDeviceAndNoFile) {
  const auto program = read_file(HPCTL_HPAGENT, size_t{1} << 30);
  ASSERT_TRUE(program.ok()) << program.error().message;
  std::set<std::string> named;  // as dlsym() gets them
  const std::string begin("\0nvml", 5);
  for (size_t at = program->find(begin); at != std::string::npos;
       at = program->find(begin, at + 1)) {
    const std::string name(program->c_str() + at + 1);
    if (name.size() > 4 && name[4] >= 'A' && name[4] <= 'Z') named.insert(name);
  }
  EXPECT_TRUE(named.contains("nvmlDeviceGetHandleByIndex_v2")) << "else this sees nothing";
  for (const std::string& name : named) {
    const bool reads = name.starts_with("nvmlSystemGet") || name.starts_with("nvmlDeviceGet");
    const bool frame = name == "nvmlInit_v2" || name == "nvmlShutdown" || name == "nvmlErrorString";
    EXPECT_TRUE(reads || frame) << name;
  }

  be("p5.48xlarge");
  install_nvml();
  add_efa("rdmap0s0", "4: ACTIVE");
  put("/proc/uptime", "7200.00 1.0\n");
  put("/dev/kmsg", "6,1,3600000001,-;NVRM: Xid (PCI:0000:53:00): 79, pid=1\n");
  const auto before = files();
  ASSERT_GE(before.size(), 6U);
  run({"gpu"}, "gggggggg");
  run({"efa"});
  EXPECT_EQ(files(), before);
}

TEST_F(Check, WrongUsageAndHelp) {
  EXPECT_EQ(run({}).exit_code, 2);
  EXPECT_EQ(run({"gpus"}).exit_code, 2);
  EXPECT_EQ(run({"gpu", "--xml"}).exit_code, 2);
  EXPECT_NE(run({"--help"}).out.find("Exit codes"), std::string::npos);
}

TEST(InstalledStack, FromTheInstallersList) {
  const InstalledStack deb = stack_of(
      "EFA installer version: 1.43.2\n# Packages installed:\nefa-config_1.18_all "
      "libfabric-aws-bin_2.1.0amzn3.0_amd64 libfabric-aws-dev_2.1.0amzn3.0_amd64 "
      "libnccl-ofi_1.16.3-1_amd64\n");
  EXPECT_EQ(deb.libfabric, (Version{2, 1, 0}));
  EXPECT_EQ(deb.ofi_nccl, (Version{1, 16, 3}));
  const InstalledStack rpm =
      stack_of("libfabric-aws-1.18.1amzn3.0-1.amzn2.x86_64 openmpi40-aws-4.1.5-3.x86_64");
  EXPECT_EQ(rpm.libfabric, (Version{1, 18, 1}));
  EXPECT_EQ(rpm.ofi_nccl, std::nullopt);
}

}  // namespace
}  // namespace hpctl::agent
