// SPDX-License-Identifier: Apache-2.0
// What a worker's memory costs the kernel (decision 1701).
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "tests/support/scoped_variable.h"
#include "tests/unit/trainer/worker_job.h"

namespace hpctl {
namespace {

using testing::Job;

// Of debugmodel's size, whose blocks glibc would map one by one; longer than a test looks.
void train_wide(Job& job, int64_t micro) {
  job.workload.train.model = *model_preset("debugmodel");
  job.workload.train.data.seq_len = 256;
  job.workload.train.batch.global = micro * job.workload.world_size;
  job.workload.train.batch.micro = micro;
  job.workload.train.steps = 1'000;
  job.workload.checkpoint.every_steps = 0;
}

// So far, of a process that runs: the tenth number of its line, by proc(5). Behind the name, which
// is in brackets, the first is a letter and the third.
int64_t page_faults_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream behind_name(line.substr(line.rfind(')') + 1));
  std::string field;
  for (int number = 3; number <= 10; ++number) behind_name >> field;
  return std::stoll(field);
}

// Two ranks, which have their buffers in rooms that they share. Until it has settled, and seldom
// later, a heap grows by some hundred pages at once: steps 6 to 26 faulted about 1000 pages of a
// rank, 16 to 36 then 8 and 128. The limit is one such growth of 600 pages and as much again. Steps
// that gave their memory back faulted 10,772 and 38,767 pages in four; in huge ones, which hptrain
// does not ask for where these tunables are set, they would fault no more than the limit.
TEST(WorkerMemory, AStepFaultsNoPages) {
  const testing::ScopedVariable small_pages("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0");
  constexpr uint64_t kSettled = 16;
  constexpr uint64_t kSteps = 4;
  constexpr int64_t kMost = 1200;
  Job job(2);
  train_wide(job, 2);
  job.start();
  std::vector<int64_t> before;
  for (const auto& worker : job.workers) {
    ASSERT_TRUE(worker->wait_for_step(kSettled)) << job.messages();
    before.push_back(page_faults_of(worker->pid()));
  }
  for (size_t rank = 0; rank < before.size(); ++rank) {
    const auto& worker = job.workers[rank];
    ASSERT_TRUE(worker->wait_for_step(kSettled + kSteps)) << job.messages();
    const int64_t faults = page_faults_of(worker->pid()) - before[rank];
    RecordProperty("faults_of_rank_" + std::to_string(rank), std::to_string(faults));
    EXPECT_LT(faults, kMost) << "rank " << rank;
  }
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
  train_wide(job, 8);
  job.start();
  ASSERT_TRUE(job.workers.front()->wait_for_step(2)) << job.messages();
  const pid_t pid = job.workers.front()->pid();
  EXPECT_GT(kib_of(pid, "AnonHugePages"), kib_of(pid, "Rss") / 4);
  const auto name = read_file("/proc/" + std::to_string(pid) + "/comm", 64);
  EXPECT_EQ(name.ok() ? *name : name.error().message, "hptrain\n");
}

}  // namespace
}  // namespace hpctl
