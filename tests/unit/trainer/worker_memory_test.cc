// SPDX-License-Identifier: Apache-2.0
// What a worker's memory costs the kernel (decision 1701).
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <fstream>
#include <string>

#include "common/base/file.h"
#include "tests/unit/trainer/worker_job.h"

namespace hpctl {
namespace {

using testing::Job;

// Of debugmodel's size, whose blocks glibc would map one by one.
void train_wide(Job& job, uint64_t steps) {
  job.workload.train.model = *model_preset("debugmodel");
  job.workload.train.data.seq_len = 256;
  job.workload.train.batch.global = 8;
  job.workload.train.batch.micro = 8;
  job.workload.train.steps = steps;
  job.workload.checkpoint.every_steps = 0;
}

int64_t page_faults(uint64_t steps) {
  Job job(1);
  train_wide(job, steps);
  EXPECT_THAT(job.run(), ::testing::Each(kExitFinished)) << job.messages();
  return job.workers.front()->minor_faults();
}

// A step that gave its memory back would fault tens of thousands of pages.
TEST(WorkerMemory, AStepFaultsNoPages) {
  const int64_t few = page_faults(4);
  const int64_t many = page_faults(10);
  RecordProperty("faults_per_step", static_cast<int>((many - few) / 6));
  EXPECT_LT(many - few, 6 * 1'000);
}

int64_t kib_of(pid_t pid, const std::string& field) {
  std::ifstream rollup("/proc/" + std::to_string(pid) + "/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1));
  }
  return -1;
}

TEST(WorkerMemory, IsInHugePages) {
  const auto policy = read_file("/sys/kernel/mm/transparent_hugepage/enabled", 1'024);
  if (!policy.ok() || policy->find("[never]") != std::string::npos) {
    GTEST_SKIP() << "this kernel gives no huge pages";
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has an allocator of its own";
#endif
  Job job(1);
  train_wide(job, 1'000);
  job.start();
  ASSERT_TRUE(job.workers.front()->wait_for_step(2)) << job.messages();
  const pid_t pid = job.workers.front()->pid();
  EXPECT_GT(kib_of(pid, "AnonHugePages"), kib_of(pid, "Rss") / 4);
  const auto name = read_file("/proc/" + std::to_string(pid) + "/comm", 64);
  EXPECT_EQ(name.ok() ? *name : name.error().message, "hptrain\n");
}

}  // namespace
}  // namespace hpctl
