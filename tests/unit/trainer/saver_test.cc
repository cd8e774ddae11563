// SPDX-License-Identifier: Apache-2.0
// A save between ranks that are threads: what is written is the state that was the newest when the
// save began, although steps go on while a thread reads it, which is what the thread sanitizer is
// to see.
#include "trainer/state/saver.h"
#include "trainer/state/checkpoint_directory.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <vector>

#include "common/base/file.h"
#include "common/job/directory_owner.h"
#include "tests/unit/trainer/comm_world.h"
#include "tests/unit/trainer/stepped_state.h"
#include "trainer/process/fault_injector.h"

namespace {
std::atomic<int> g_failing_syncs{0};
}  // namespace

// In place of the C library's: so many syncs of a directory with a manifest fail.
extern "C" int fsync(int fd) {
  if (::faccessat(fd, "manifest.json", F_OK, 0) == 0 && g_failing_syncs > 0) {
    --g_failing_syncs;
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace hpctl {
namespace {

using test::bytes_of;
using test::make_state;
using test::Steps;

constexpr int kStepsMeanwhile = 5;  // more than there are slots
constexpr uint64_t kStepsAtMost = 2'000;

// With `moments` in bf16 all state is.
Workload saving_workload(const CommunicatorOptions& options, Strategy strategy, StateType moments) {
  Workload workload;
  workload.generation = 1;
  workload.rank = options.rank;
  workload.world_size = options.world_size;
  workload.checkpoint_dir = options.rendezvous_dir + "-checkpoints";
  workload.train.model = *model_preset("tiny");
  workload.train.strategy = strategy;
  workload.train.optimizer.moments = workload.train.optimizer.master = moments;
  workload.train.seed = 3;
  return workload;
}

void save_while_training(Communicator& world, const Workload& workload) {
  TrainingState state = make_state(workload);
  Steps steps(state);
  steps.take();
  steps.take();
  const std::vector<std::byte> saved = bytes_of(state);
  {
    Saver saver(workload, state, world);
    ASSERT_TRUE(prepare_checkpoint_directory(workload).ok());
    ASSERT_TRUE(saver.at_boundary({}, true).ok());
    for (int i = 0; i < kStepsMeanwhile; ++i) steps.take();
    while (saver.committed_step() == 0 && state.step() < kStepsAtMost) {
      std::array<double, 2> sum = {saver.news().finished, saver.news().failed};
      ASSERT_TRUE(world.all_reduce(sum).ok());
      steps.take();
      const Outcome turn = saver.at_boundary({sum[0], sum[1]}, false);
      ASSERT_TRUE(turn.ok()) << turn.error().message;
    }
    ASSERT_TRUE(saver.settle().ok());
    EXPECT_EQ(saver.committed_step(), 2U);
    EXPECT_EQ(saver.copy_bytes(), 0U) << to_word(workload.train.strategy);
  }
  EXPECT_NE(bytes_of(state), saved);
  Workload again = workload;
  again.start_step = 2;
  again.resume_checkpoint = workload.checkpoint_dir + "/" + CheckpointRef{2, 1}.name();
  TrainingState loaded = make_state(again);
  EXPECT_EQ(loaded.step(), 2U);
  EXPECT_TRUE(bytes_of(loaded) == saved) << "rank " << workload.rank;
}

void expect_whole_saves(Strategy strategy, StateType moments) {
  test::on_every_rank(2, [=](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& world) {
      save_while_training(world, saving_workload(options, strategy, moments));
    });
  });
}

// On CPUs no strategy copies anything for it, on the training thread or another.
TEST(Saver, WritesWhatWasTheNewestAlthoughStepsGoOn) {
  for (const StateType moments : {StateType::kFp32, StateType::kBf16}) {
    expect_whole_saves(Strategy::kFull, moments);
    expect_whole_saves(Strategy::kNoShard, moments);  // each writes a part of its slot
  }
}

// Both saves of older steps take kDiskTroubleMs, and the stop leaves time for one and a half.
void stop_in_second_save(Communicator& world, Workload workload) {
  constexpr InjectedFault kSlow = InjectedFault::kSlowDisk;
  workload.last_checkpoint_ms = traits_of(kSlow).lasts_ms * 8 / 5;
  ASSERT_TRUE(prepare_checkpoint_directory(workload).ok());
  TrainingState state = make_state(workload);
  Steps steps(state);
  Saver saver(workload, state, world);
  for (int save = 0; save < 2; ++save) {
    ASSERT_TRUE(saver.settle().ok());
    steps.take();
    order_fault(kSlow, workload.generation);
    ASSERT_TRUE(saver.at_boundary({}, true).ok());
  }
  EXPECT_EQ(saver.committed_step(), 1U);
  steps.take();
  const auto finished = saver.finish([]() -> std::optional<double> { return 0.0; }, [] {});
  ASSERT_TRUE(finished.ok()) << finished.error().message;
  EXPECT_TRUE(*finished);
  EXPECT_EQ(saver.committed_step(), 3U);
  EXPECT_EQ(saver.failed_saves(), 0U);
  const auto names = list_directory(workload.checkpoint_dir);
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(*names, (std::vector<std::string>{"step-1.g1", "step-3.g1"}));
}

// SIGKILL came while the second of two saves was written.
TEST(Saver, StopGivesUpOlderSaveForNewestStep) {
  test::on_every_rank(1, [](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& world) {
      stop_in_second_save(world, saving_workload(options, Strategy::kFull, StateType::kFp32));
    });
  });
}

void expect_last_save_counts(int failing_syncs) {
  test::on_every_rank(2, [=](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& world) {
      const Workload workload = saving_workload(options, Strategy::kFull, StateType::kFp32);
      ASSERT_TRUE(prepare_checkpoint_directory(workload).ok());
      TrainingState state = make_state(workload);
      Steps steps(state);
      steps.take();
      Saver saver(workload, state, world);
      if (options.rank == 0) g_failing_syncs = failing_syncs;
      const auto finished = saver.finish([]() -> std::optional<double> { return {}; }, [] {});
      ASSERT_TRUE(finished.ok()) << finished.error().message;
      EXPECT_TRUE(*finished);
      EXPECT_EQ(saver.committed_step(), 1U);
      EXPECT_FALSE(saver.is_failing());
      EXPECT_EQ(saver.failed_in_a_row(), 0U);
    });
  });
  EXPECT_EQ(g_failing_syncs, 0);
}

// The sync after the rename of the last manifest failed with EIO. Each further attempt found the
// checkpoint committed, and the job ended, or waited for limits.storage and failed.
TEST(Saver, CommitWhoseSyncFailedCountsOnceSynced) {
  expect_last_save_counts(1);
  expect_last_save_counts(2);  // the second attempt finds the manifest
}

void expect_no_save_in_directory_of_another(Communicator& world, Workload workload) {
  const std::string link = workload.checkpoint_dir + "-link";
  for (const char* which : {"own", "other"}) {
    const std::string directory = workload.checkpoint_dir + "-" + which;
    ASSERT_TRUE(make_directories(directory).ok());
    JobIdentity job;
    job.uuid = which;
    const DirectoryOwner owner{job, {}, false};
    ASSERT_TRUE(write_file_atomic(directory + "/owner.json", to_json_text(owner)).ok());
  }
  ASSERT_EQ(::symlink((workload.checkpoint_dir + "-own").c_str(), link.c_str()), 0);
  const std::string other = workload.checkpoint_dir + "-other";
  workload.checkpoint_dir = link;
  workload.claimed = true;
  workload.owner = "own";
  ASSERT_TRUE(prepare_checkpoint_directory(workload).ok());
  TrainingState state = make_state(workload);
  Steps steps(state);
  steps.take();
  Saver saver(workload, state, world);
  ASSERT_EQ(::unlink(link.c_str()), 0);
  ASSERT_EQ(::symlink(other.c_str(), link.c_str()), 0);
  ASSERT_TRUE(saver.at_boundary({}, true).ok());
  ASSERT_TRUE(saver.settle().ok()) << "training goes on";
  EXPECT_TRUE(saver.is_failing());
  const auto finished = saver.finish([]() -> std::optional<double> { return {}; }, [] {});
  ASSERT_FALSE(finished.ok()) << "the controller judges at the end";
  EXPECT_EQ(finished.error().code, ErrorCode::kStorage);
  EXPECT_NE(finished.error().message.find("belongs to"), std::string::npos);
  EXPECT_EQ(list_directory(other).value(), std::vector<std::string>{"owner.json"});
}

// The link of checkpoint.dir was changed while the job ran, and its next save went into another
// job's directory.
TEST(Saver, DirectoryOfAnotherJobGetsNoSave) {
  test::on_every_rank(1, [](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& world) {
      expect_no_save_in_directory_of_another(
          world, saving_workload(options, Strategy::kFull, StateType::kFp32));
    });
  });
}

CommunicatorOptions one_of(int world_size) {
  CommunicatorOptions options;
  options.world_size = world_size;
  return options;
}

TEST(TrainingState, StepsLeaveAHeldStateAlone) {
  TrainingState state = make_state(saving_workload(one_of(1), Strategy::kFull, StateType::kFp32));
  Steps steps(state);
  steps.take();
  const ElementRange range = state.padded_shard(1);
  const auto size = static_cast<size_t>(range.size()) * sizeof(float);
  for (int round = 0; round < 3; ++round) {
    const std::vector<std::byte> newest = bytes_of(state);
    std::vector<std::byte> part(size);
    state.begin_read_sealed(StateKind::kExpAvg, 1, range, part.data());
    ASSERT_TRUE(state.hold_newest());
    const std::byte* const held = state.held(StateKind::kExpAvg, 1, range);
    for (int i = 0; i < kStepsMeanwhile + round; ++i) {
      ASSERT_TRUE(state.has_room());
      steps.take();
      EXPECT_EQ(std::memcmp(held, part.data(), size), 0) << "round " << round << ", step " << i;
    }
    EXPECT_NE(bytes_of(state), newest);
    state.release_held();
  }
}

}  // namespace
}  // namespace hpctl
