// SPDX-License-Identifier: Apache-2.0
// Whole workers that are given what they cannot work with: an exit code that says what to do, and
// one line that says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "tests/unit/trainer/worker_job.h"

namespace hpctl {
namespace {

using testing::calm_job;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Job;
using testing::WorkerProcess;

// What cannot be cured by a restart: 93 and one line that names the thing.
struct BadInput {
  const char* name;
  void (*spoil)(Job&);
  const char* message;
};
class Refuses : public ::testing::TestWithParam<BadInput> {};
INSTANTIATE_TEST_SUITE_P(BadInput, Refuses,
                         ::testing::Values(BadInput{"EmptyData",
                                                    [](Job& j) {
                                                      j.workload.train.data.path = j / "empty";
                                                      std::ofstream(j / "empty").close();
                                                    },
                                                    "empty"},
                                           BadInput{"ShortData",
                                                    [](Job& j) {
                                                      j.workload.train.data.path = j / "short";
                                                      std::ofstream(j / "short") << "too short";
                                                    },
                                                    "short"},
                                           BadInput{
                                               "SmallVocabulary",
                                               [](Job& j) { j.workload.train.model.vocab = 255; },
                                               "workload.train.model.vocab"},
                                           BadInput{"CheckpointDirIsAFile",
                                                    [](Job& j) {
                                                      std::ofstream(j / "file") << "x";
                                                      j.workload.checkpoint_dir =
                                                          j / "file/checkpoints";
                                                    },
                                                    "file"},
                                           BadInput{"OtherModel",
                                                    [](Job& j) {
                                                      j.resume_from(calm_job(), "step-8.g1", 8);
                                                      j.workload.train.model.ffn = 256;
                                                      j.workload.train.steps = 10;
                                                    },
                                                    "step-8.g1"}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Refuses, WithOneLine) {
  Job job(1);
  GetParam().spoil(job);
  EXPECT_THAT(job.run(), Each(kExitDoNotRestart)) << job.messages();
  EXPECT_THAT(job.workers[0]->message(), HasSubstr(GetParam().message));
}

// A file server that was away for 1.2 s ended jobs for good: with 93 nobody tries again.
TEST(Worker, AbsentDataMayComeBack) {
  Job job(1);
  job.workload.train.data.path = job / "nothing";
  EXPECT_THAT(job.run(), Each(1)) << job.messages();
  EXPECT_THAT(job.workers[0]->message(), HasSubstr("nothing"));
}

// The mount of the data was away for 30 s at a recovery, and the job was FAILED after three tries;
// at once if its mount point was there, and empty.
TEST(Worker, DataOfAJobThatHasTrainedAreWaitedFor) {
  Job job(1);
  std::filesystem::copy(calm_job().workload.checkpoint_dir, job.workload.checkpoint_dir,
                        std::filesystem::copy_options::recursive);
  job.workload.train.data.path = job / "away";
  job.resume("step-3.g1", 3);
  EXPECT_THAT(job.run(), Each(kExitStorage)) << job.messages();
  EXPECT_EQ(job.workers[0]->page().fault_error.load(), ENOENT);
  std::filesystem::create_directory(job / "away");
  ++job.workload.generation;
  EXPECT_THAT(job.run(), Each(kExitStorage)) << job.messages();
  EXPECT_THAT(job.messages(), HasSubstr("no text in"));
}

TEST(Worker, DataThatDifferBetweenRanksAreRefusedByAll) {
  for (const bool one_node : {false, true}) {
    Job job(2);
    for (const char* name : {"here", "there"}) {
      job.workload.train.data.path = job / name;
      std::ofstream(job / name) << std::string(20'000, name[0]);
      job.workload.rank = static_cast<int32_t>(job.workers.size());
      job.workload.rendezvous_dir = job / "rdzv";
      job.workload.node = one_node ? "n0" : "n" + std::to_string(job.workload.rank);
      job.workers.push_back(std::make_unique<WorkerProcess>(job.workload));
    }
    for (const auto& worker : job.workers) {
      EXPECT_EQ(worker->wait(), kExitDoNotRestart);
      EXPECT_THAT(worker->message(), HasSubstr("differs between rank 0 and rank 1"));
      EXPECT_THAT(worker->message(), HasSubstr(one_node ? "both on node n0: it was changed"
                                                        : "put the same files on every node"));
    }
  }
}

TEST(Worker, AModelThatTheMachineCannotHoldIsRefusedAtOnce) {
  Job job(1);
  job.workload.train.model = *model_preset("llama3.1-405b");
  EXPECT_THAT(job.run(), Each(kExitDoNotRestart)) << job.messages();
  EXPECT_THAT(job.workers[0]->message(), HasSubstr("out of memory: 1 worker needs"));
}

TEST(Worker, NoMemoryForTheArena) {
  Job job(1);
  job.workload.rank = 0;
  UniqueFd arena(memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(fcntl(arena.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  WorkerProcess worker(job.workload, std::move(arena));
  EXPECT_EQ(worker.wait(), 1) << "another attempt or another machine may have it";
  EXPECT_THAT(worker.message(), HasSubstr("cannot reserve"));
}

TEST(Worker, DamagedCheckpointIsNamed) {
  Job job(2);
  std::filesystem::copy(calm_job().workload.checkpoint_dir, job.workload.checkpoint_dir,
                        std::filesystem::copy_options::recursive);
  job.workload.train.data.path = calm_job().workload.train.data.path;
  const std::string shard = job.workload.checkpoint_dir + "/step-3.g1/shard-00001.safetensors";
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-100, std::ios::end);
    file.put('x');
  }
  job.resume("step-3.g1", 3);
  const std::vector<int> codes = job.run();
  EXPECT_THAT(codes, ::testing::Contains(kExitCheckpointDamaged));
  EXPECT_THAT(job.messages(), HasSubstr("shard-00001.safetensors"));
  const auto first = std::find(codes.begin(), codes.end(), kExitCheckpointDamaged);
  const ProgressPage& page = job.workers[static_cast<size_t>(first - codes.begin())]->page();
  EXPECT_EQ(std::string(page.fault_file, page.fault_file_length.load()), "shard-00001.safetensors");
  EXPECT_GT(page.fault_bytes.load(), 0U) << "and which part of it";
  job.workload.resume_checkpoint += "x";
  ++job.workload.generation;
  EXPECT_THAT(job.run(), Each(kExitCheckpointDamaged)) << "a missing one is as bad";
}

// Errors outside the shards of a checkpoint reached the controller as text alone.
TEST(Worker, DirectoryThatIsAwayIsReportedWithItsErrno) {
  Job job(1);
  job.workload.claimed = true;
  EXPECT_THAT(job.run(), Each(kExitStorage)) << job.messages();
  EXPECT_THAT(job.messages(), HasSubstr("has no owner.json"));
  const ProgressPage& page = job.workers[0]->page();
  EXPECT_EQ(page.fault_error.load(), ENOENT);
  EXPECT_EQ(page.fault_file_length.load(), 0U) << "it is no file of a checkpoint";
}

// A LibTorch for GPUs where it sees none. The node may be at fault, so the job may try others.
TEST(Worker, AMissingGpuIsNamed) {
  Job job(1);
  const std::vector<int> codes = job.run();
  if (codes[0] == kExitFinished) {
    GTEST_SKIP() << "LibTorch is for CPUs, or sees a GPU, or CUDA_VISIBLE_DEVICES is empty";
  }
  EXPECT_EQ(codes[0], 1) << "an unknown fault";
  EXPECT_THAT(job.messages(),
              HasSubstr("worker 0 of this node needs its own GPU, and LibTorch sees 0"));
  EXPECT_THAT(job.messages(), HasSubstr("set CUDA_VISIBLE_DEVICES= to train on the CPU"));
}

// File systems that are visible to the worker alone.
bool mount_privately(unsigned long flags, const char* options) {
  return unshare(CLONE_NEWNS) == 0 &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("small", "/mnt", "tmpfs", flags, options) == 0;
}
bool small_disk() { return mount_privately(0, "size=256k"); }
bool read_only_disk() { return mount_privately(MS_RDONLY, ""); }

struct BadDisk {
  const char* name;
  bool (*in_child)();
  const char* message;
  int code;
};
class BadDisks : public ::testing::TestWithParam<BadDisk> {};
INSTANTIATE_TEST_SUITE_P(
    Disk, BadDisks,
    ::testing::Values(BadDisk{"Full", small_disk, "No space left on device", kExitDoNotRestart},
                      BadDisk{"ReadOnly", read_only_disk, "Read-only file system", kExitStorage}),
    [](const auto& info) { return info.param.name; });

TEST_P(BadDisks, StopTheJobWithAReason) {
  Job job(1);
  job.workload.rank = 0;
  job.workload.checkpoint_dir = "/mnt";
  job.workload.storage_limit_ms = 0;
  WorkerProcess worker(job.workload, WorkerProcess::memory("arena", ""), GetParam().in_child);
  const int code = worker.wait();
  if (code == 77) GTEST_SKIP() << "a mount namespace needs privileges that this run lacks";
  EXPECT_EQ(code, GetParam().code);
  EXPECT_THAT(worker.message(), HasSubstr(GetParam().message));
  if (code == kExitStorage) {
    EXPECT_EQ(worker.page().fault_error.load(), EROFS);
  }
}

}  // namespace
}  // namespace hpctl
