// SPDX-License-Identifier: Apache-2.0
#include "hpctl/worker_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "common/base/file.h"
#include "tests/support/temporary_directory.h"
#include "trainer/plan/fit.h"
#include "trainer/plan/memory_plan.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;

constexpr double kGiB = 1024.0 * 1024 * 1024;

JobSpec two_nodes() {
  JobSpec spec;
  spec.nodes = 2;
  spec.workers_per_node = 4;
  spec.train.emplace();
  return spec;
}

// A machine whose driver tells of these GPUs.
class WorkerMemoryOfAMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    put("dev/nvidiactl", "");
  }
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path full = directory_ / path;
    std::filesystem::create_directories(full.parent_path());
    ASSERT_TRUE(write_file_atomic(full.string(), text).ok());
  }
  void put_gpu(const std::string& address, const std::string& product) {
    put("proc/driver/nvidia/gpus/" + address + "/information",
        "Model: \t\t " + product + "\nIRQ:   \t\t 64\n");
  }
  WorkerMemory found(const JobSpec& spec) {
    return find_worker_memory(spec, {.local = true, .device = {}, .root = directory_.path()});
  }
  TemporaryDirectory directory_;
};

TEST_F(WorkerMemoryOfAMachine, ItsGpusAreSharedByItsNodes) {
  put_gpu("0000:01:00.0", "NVIDIA H200");
  put_gpu("0000:02:00.0", "NVIDIA H100 80GB HBM3");
  const WorkerMemory memory = found(two_nodes());
  ASSERT_NE(memory.gpu, nullptr);
  EXPECT_EQ(memory.gpu->name, "h100") << "the least of them";
  EXPECT_EQ(memory.bytes, 40 * kGiB);
  EXPECT_EQ(memory.source, "h100 of this machine, shared by 2 nodes");
}

TEST_F(WorkerMemoryOfAMachine, AGpuThatNoPlanKnowsIsNotGuessed) {
  EXPECT_THAT(found(two_nodes()).source, HasSubstr("the driver does not tell"));
  put_gpu("0000:01:00.0", "Tesla K80");
  const WorkerMemory memory = found(two_nodes());
  EXPECT_EQ(memory.bytes, 0);
  EXPECT_EQ(memory.source, "no plan knows this machine's Tesla K80; --gpu names one like it");
}

TEST_F(WorkerMemoryOfAMachine, GpusThatAreHiddenDoNotCount) {
  put_gpu("0000:01:00.0", "NVIDIA H200");
  JobSpec spec = two_nodes();
  spec.env["CUDA_VISIBLE_DEVICES"] = "";
  const WorkerMemory memory = found(spec);
  EXPECT_EQ(memory.gpu, nullptr);
  EXPECT_GT(memory.bytes, 0);
  EXPECT_LT(memory.bytes, machine_memory_bytes() / 8) << "of eight workers, and their programs";
  spec.env["CUDA_VISIBLE_DEVICES"] = "0";
  EXPECT_NE(found(spec).gpu, nullptr);
}

TEST_F(WorkerMemoryOfAMachine, TheLimitOfACgroupIsTheMemory) {
  std::filesystem::remove(directory_ / "dev/nvidiactl");
  put("proc/self/cgroup", "0::/job\n");
  put("sys/fs/cgroup/job/memory.max", std::to_string(uint64_t{2} << 30) + "\n");
  JobSpec spec = two_nodes();
  const WorkerMemory memory = found(spec);
  EXPECT_EQ(memory.source, "its part of 2.0 GiB of this cgroup");
  EXPECT_EQ(memory.bytes, (2 * kGiB - 2 * kStandbyBytes) / 8 - 200.0 * (1 << 20)) << "too little";
  spec.recovery.standbys = 100;
  EXPECT_EQ(found(spec).bytes, 1) << "known, and nothing left";
}

TEST_F(WorkerMemoryOfAMachine, EachOfItsNodesHasAWorkerForEachGpuOfItsShare) {
  JobSpec spec = two_nodes();
  const JobPlace place = {.local = true, .device = {}, .root = directory_.path()};
  EXPECT_EQ(choose_workers(spec, place), "") << "a number was given";
  EXPECT_EQ(spec.workers_per_node, 4);
  const auto chosen = [&] {
    spec.auto_workers = true;
    return choose_workers(spec, place);
  };
  EXPECT_EQ(chosen(), "workers_per_node: auto is 1: this machine has no GPU");
  for (const char* address : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"}) {
    put_gpu(address, "NVIDIA H200");
  }
  EXPECT_EQ(chosen(), "workers_per_node: auto is 2: this machine has 4 GPUs, for 2 nodes");
  EXPECT_EQ(spec.workers_per_node, 2);
  EXPECT_FALSE(spec.auto_workers);
  spec.nodes = 8;
  EXPECT_THAT(chosen(), HasSubstr("auto is 1: this machine has 4 GPUs, for 8 nodes"));
  spec.env["CUDA_VISIBLE_DEVICES"] = "";
  EXPECT_THAT(chosen(), HasSubstr("auto is 1: this machine has no GPU"));
}

TEST(WorkerMemory, ANodeOfAClusterHasAWorkerForEachGpuOfItsGres) {
  JobSpec spec = two_nodes();
  const auto workers = [&](const char* gres, const JobPlace& place = {}) {
    spec.slurm.gres = gres;
    spec.auto_workers = true;
    EXPECT_THAT(choose_workers(spec, place),
                HasSubstr(place.device ? "--gpu is cpu" : "slurm.gres asks for"));
    return spec.workers_per_node;
  };
  EXPECT_EQ(workers("gpu:h100:8"), 8);
  EXPECT_EQ(workers("gpu:4"), 4);
  EXPECT_EQ(workers("gpu"), 1);
  EXPECT_EQ(workers("gpu:h100"), 1);
  EXPECT_EQ(workers("shard:4,gres:gpu:a100:2(S:0-1),gpu:l4:1"), 3);
  EXPECT_EQ(workers("gpu:8", {.device = nullptr}), 1);
  EXPECT_EQ(workers("gpu:99999999999999999999"), 1);
  for (const char* none : {"", "gpu:0", "gpus:8", "shard:8"}) EXPECT_EQ(workers(none), 1) << none;
}

TEST(WorkerMemory, OfACluster) {
  JobSpec spec = two_nodes();
  const auto found = [&](std::optional<const GpuModel*> device) {
    return find_worker_memory(spec, {.local = false, .device = device, .root = ""});
  };
  EXPECT_EQ(found({}).bytes, 0);
  EXPECT_THAT(found({}).source, HasSubstr("neither --gpu nor a type in slurm.gres"));
  spec.slurm.gres = "gpu:8";
  EXPECT_EQ(found({}).bytes, 0) << "of what kind?";
  spec.slurm.gres = "gpu:b200:8";
  EXPECT_EQ(found({}).gpu->name, "b200");
  EXPECT_EQ(found(find_gpu_model("h100")).source, "h100 by --gpu") << "who is told, believes it";
  EXPECT_EQ(found(find_gpu_model("h100")).bytes, 80 * kGiB);
  EXPECT_EQ(found(nullptr).bytes, 0);
  EXPECT_THAT(found(nullptr).source, HasSubstr("slurm.mem does not tell"));
  spec.slurm.mem_mb = 64 << 10;
  EXPECT_EQ(found(nullptr).gpu, nullptr);
  EXPECT_EQ(found(nullptr).bytes, (64 * kGiB - kStandbyBytes) / 4 - 200.0 * (1 << 20));
}

TEST(WorkerMemory, TheTypeOfAGresIsAGpu) {
  const auto name = [](const char* gres) {
    const GpuModel* gpu = gpu_of_gres(gres);
    return gpu == nullptr ? std::string() : std::string(gpu->name);
  };
  EXPECT_EQ(name("gpu:h100:8"), "h100");
  EXPECT_EQ(name("gpu:H200"), "h200");
  EXPECT_EQ(name("gres:gpu:a100:4"), "a100");
  EXPECT_EQ(name("shard:4,gpu:a10g:1(S:0-1)"), "a10g");
  EXPECT_EQ(name("gpu:nvidia_h100_80gb_hbm3:8"), "h100");
  EXPECT_EQ(name("gpu:nvidia_h100_nvl:2"), "h100-nvl");
  EXPECT_EQ(name("gpu:nvidia_a100-sxm4-40gb:8"), "a100-40g");
  for (const char* none : {"", "gpu", "gpu:", "gpu:8", "gpu:tesla:8", "shard:h100:8", ",,"}) {
    EXPECT_EQ(name(none), "") << none;
  }
}

}  // namespace
}  // namespace hpctl
