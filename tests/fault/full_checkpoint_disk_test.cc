// SPDX-License-Identifier: Apache-2.0
// The disk of the checkpoints becomes full while workers train: they go on without them, ask for
// room, and save again when there is some. Needs root for a mount of its own.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/job/lineage.h"
#include "tests/support/promise.h"
#include "tests/unit/trainer/worker_job.h"
#include "trainer/checkpoint/commit.h"

namespace hpctl {
namespace {

using testing::Job;

class FullCheckpointDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: a private mount";
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      GTEST_SKIP() << "mounts are not allowed here: " << std::strerror(errno);
    }
    const std::string& dir = job_.workload.checkpoint_dir;
    ASSERT_TRUE(make_directories(dir).ok());
    // Of checkpoints of about 1.6 MB.
    ASSERT_EQ(::mount("none", dir.c_str(), "tmpfs", 0, "size=16m"), 0) << std::strerror(errno);
    GenerationRecord record;
    record.generation = 1;
    ASSERT_TRUE(create_generation(dir, record).ok());
    job_.workload.train.steps = 1'000'000;
    job_.workload.train.schedule.name = ScheduleShape::kConstant;
    job_.workload.checkpoint.every_steps = 2;
    job_.workload.checkpoint.keep = 3;
    job_.workload.ledger_dir.clear();
  }
  void TearDown() override {
    job_.workers.clear();
    ::umount2(job_.workload.checkpoint_dir.c_str(), MNT_DETACH);
  }

  std::string filler() const { return job_.workload.checkpoint_dir + "/filler"; }
  void fill() const {
    const UniqueFd fd(::open(filler().c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
    const std::string page(4096, 'x');
    while (::write(fd.get(), page.data(), page.size()) > 0) {
    }
    EXPECT_EQ(errno, ENOSPC);
  }
  std::vector<CheckpointRef> complete() const {
    return list_checkpoints(job_.workload.checkpoint_dir).value();
  }
  uint64_t newest() const {
    const auto refs = complete();
    return refs.empty() ? 0 : refs.back().step;
  }
  testing::WorkerProcess& rank0() { return *job_.workers[0]; }
  // What the controller does about each save that finds the disk full.
  void make_room_when_asked() {
    const uint64_t now = rank0().page().saves_out_of_space.load();
    if (std::exchange(out_of_space_, now) >= now) return;
    const auto pruned = delete_older_checkpoints(
        job_.workload.checkpoint_dir,
        {.generation = 1, .keep = job_.workload.checkpoint.keep, .for_room = true});
    ASSERT_TRUE(pruned.ok()) << pruned.error().message;
    EXPECT_EQ(pruned->problem + pruned->refused, "");
  }

  Job job_{2};
  uint64_t out_of_space_ = 0;
};

TEST_F(FullCheckpointDisk, TrainingGoesOnAndSavesWhenThereIsRoom) {
  job_.start();
  ASSERT_TRUE(rank0().wait_until([&] { return complete().size() >= 3; })) << job_.messages();
  // What is made free is filled again, until nothing but the newest one is left.
  ASSERT_TRUE(rank0().wait_until([&] {
    make_room_when_asked();
    fill();
    return complete().size() == 1;
  })) << job_.messages();
  const uint64_t step = rank0().page().step.load();
  ASSERT_TRUE(rank0().wait_until([&] {
    make_room_when_asked();
    fill();
    return rank0().page().step.load() >= step + 20;
  })) << "training ended: "
      << job_.messages();
  EXPECT_GT(rank0().page().saves_without_room.load(), 0U);
  EXPECT_GT(rank0().page().saves_out_of_space.load(), 0U);
  ASSERT_GE(complete().size(), 1U) << broken_promise("checkpoint");
  const uint64_t newest_then = newest();
  const auto whole =
      verify_checkpoint(job_.workload.checkpoint_dir + "/" + complete().back().name());
  EXPECT_TRUE(whole.ok() && whole->problems.empty()) << broken_promise("checkpoint");
  ASSERT_EQ(::unlink(filler().c_str()), 0);
  ASSERT_TRUE(rank0().wait_until([&] { return newest() > newest_then; })) << job_.messages();
  const auto& told = rank0().page().saves_without_room;
  ASSERT_TRUE(rank0().wait_until([&] { return told.load() == 0; })) << "after the next step";
  for (const auto& worker : job_.workers) worker->send(SIGTERM);
  for (const auto& worker : job_.workers) EXPECT_EQ(worker->wait(), -SIGTERM);
  EXPECT_EQ(newest(), rank0().page().step.load());
  EXPECT_GE(job_.metrics().back().value("failed_saves", 0), 1);
}

// As a file server that is in trouble: nothing is deleted for it, and no step is lost.
TEST_F(FullCheckpointDisk, AReadOnlyDiskIsWaitedForAndKeepsItsCheckpoints) {
  const std::string& dir = job_.workload.checkpoint_dir;
  const auto remount = [&](unsigned long flags, const char* options = nullptr) {
    return ::mount("none", dir.c_str(), nullptr, MS_REMOUNT | flags, options) == 0;
  };
  ASSERT_TRUE(remount(0, "size=512m")) << "nothing is deleted here";
  job_.start();
  ASSERT_TRUE(rank0().wait_until([&] { return complete().size() >= 3; })) << job_.messages();
  // Refused while a file is being written.
  ASSERT_TRUE(rank0().wait_until([&] { return remount(MS_RDONLY); })) << std::strerror(errno);
  const auto before = complete();
  const auto& failed = rank0().page().saves_without_room;
  ASSERT_TRUE(rank0().wait_until([&] { return failed.load() > 0; })) << job_.messages();
  const uint64_t step = rank0().page().step.load();
  ASSERT_TRUE(rank0().wait_until([&] { return rank0().page().step.load() >= step + 20; }))
      << "training ended: " << job_.messages();
  EXPECT_EQ(complete(), before) << broken_promise("checkpoint");
  EXPECT_EQ(rank0().page().saves_out_of_space.load(), 0U) << "it is not full";
  ASSERT_TRUE(remount(0)) << std::strerror(errno);
  ASSERT_TRUE(rank0().wait_until([&] { return newest() > step; })) << job_.messages();
  for (const auto& worker : job_.workers) worker->send(SIGTERM);
  for (const auto& worker : job_.workers) EXPECT_EQ(worker->wait(), -SIGTERM);
  EXPECT_EQ(newest(), rank0().page().step.load());
}

// No step follows that would tell.
TEST_F(FullCheckpointDisk, LastSaveAsksForRoomToo) {
  job_.workload.train.steps = 8;
  job_.workload.checkpoint.every_steps = 0;
  fill();
  job_.start();
  ASSERT_TRUE(rank0().wait_until([&] { return rank0().page().saves_out_of_space.load() > 0; }))
      << job_.messages();
  EXPECT_EQ(rank0().page().step.load(), 8U);
  ASSERT_EQ(::unlink(filler().c_str()), 0);
  for (const auto& worker : job_.workers) EXPECT_EQ(worker->wait(), kExitFinished);
  EXPECT_EQ(newest(), 8U);
}

TEST_F(FullCheckpointDisk, WhoIsToldToEndEndsWithoutACheckpoint) {
  job_.workload.checkpoint.every_steps = 0;
  fill();
  job_.start();
  ASSERT_TRUE(rank0().wait_for_step(2)) << job_.messages();
  for (const auto& worker : job_.workers) worker->send(SIGTERM);
  for (const auto& worker : job_.workers) EXPECT_EQ(worker->wait(), -SIGTERM);
  EXPECT_EQ(newest(), 0U);
}

TEST_F(FullCheckpointDisk, TheLimitFailsTheJobAndSaysWhy) {
  job_.workload.storage_limit_ms = 0;
  fill();
  EXPECT_THAT(job_.run(), ::testing::Each(kExitDoNotRestart));
  EXPECT_THAT(job_.messages(), ::testing::HasSubstr("No space left on device; free space there"));
}

}  // namespace
}  // namespace hpctl
