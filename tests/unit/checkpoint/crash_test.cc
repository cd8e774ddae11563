// SPDX-License-Identifier: Apache-2.0
// SIGKILL at every boundary of save, commit, deletion and copy to a mirror: afterwards there is a
// complete checkpoint or none, the one before is untouched, and the next generation saves and
// cleans up as if nothing had been.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "common/base/file.h"
#include "tests/support/promise.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/failpoint_names.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/mirror.h"

namespace hpctl {
namespace {

constexpr int32_t kWorld = 2;

std::string mirror_of(const std::string& dir) { return dir + "/mirror"; }

void mirror_newest(const std::string& dir) {
  ASSERT_TRUE(make_directories(mirror_of(dir)).ok());
  ASSERT_TRUE(copy_lineage(dir, mirror_of(dir)).ok());
  const auto newest = latest_valid_checkpoint(dir, {}).value()->name();
  const auto copied = copy_checkpoint(dir, mirror_of(dir), newest, {});
  ASSERT_TRUE(copied.ok()) << copied.error().message;
}

// The victim: runs in a process of its own, because fail-points are read from the environment when
// a process starts. Saves step 40 over an existing step 20, keeps only the newest, and mirrors
// that.
TEST(CrashVictim, DISABLED_SavesAndDeletes) {
  const char* dir = std::getenv("CRASH_TEST_DIR");
  ASSERT_NE(dir, nullptr);
  GenerationRecord first;
  first.generation = 1;
  ASSERT_TRUE(create_generation(dir, first).ok());
  ASSERT_TRUE(save_synthetic({dir, {40, 1}, kWorld, 1, 0, {}}).ok());
  ASSERT_TRUE(keep_newest(dir, 1, 1).ok());
  mirror_newest(dir);
}

// True when the fail-point killed the victim; false when it ran to its end without passing it.
bool victim_dies(const std::string& failpoint, const std::string& dir) {
  const pid_t pid = fork();
  if (pid == 0) {
    setenv("HPCTL_FAILPOINT", failpoint.c_str(), 1);
    setenv("CRASH_TEST_DIR", dir.c_str(), 1);
    if (freopen("/dev/null", "w", stdout) == nullptr) _exit(98);
    execl("/proc/self/exe", "crash_test", "--gtest_filter=CrashVictim.*",
          "--gtest_also_run_disabled_tests", nullptr);
    _exit(99);
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  if (WIFSIGNALED(status)) {
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    return true;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << failpoint;
  return false;
}

void expect_undamaged(const std::string& dir, const CheckpointRef& ref) {
  const auto report = verify_checkpoint(dir + "/" + ref.name());
  ASSERT_TRUE(report.ok()) << report.error().message << broken_promise("checkpoint");
  EXPECT_TRUE(report->problems.empty()) << report->problems.front() << broken_promise("checkpoint");
}

void expect_sound_after_crash(const std::string& dir, const std::string& failpoint) {
  SCOPED_TRACE(failpoint);
  const auto complete = list_checkpoints(dir).value();
  ASSERT_FALSE(complete.empty()) << "a save or a deletion lost every checkpoint"
                                 << broken_promise("checkpoint");
  for (const CheckpointRef& ref : complete) expect_undamaged(dir, ref);
  for (const CheckpointRef& ref : list_checkpoints(mirror_of(dir)).value()) {
    expect_undamaged(mirror_of(dir), ref);
  }
  if (complete.back() == CheckpointRef{20, 1}) {
    EXPECT_EQ(complete.size(), 1U);
  }
  // The next generation goes on from there and leaves nothing of the crash behind.
  GenerationRecord second;
  second.generation = 2;
  second.parent = 1;
  second.start_step = complete.back().step;
  ASSERT_TRUE(create_generation(dir, second).ok());
  const auto saved = save_synthetic({dir, {60, 2}, kWorld, 1, 1, {}});
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  ASSERT_TRUE(keep_newest(dir, 1, 2).ok());
  mirror_newest(dir);
  EXPECT_EQ(list_directory(dir).value(),
            (std::vector<std::string>{"generations", "mirror", "step-60.g2"}));
  EXPECT_EQ(latest_valid_checkpoint(mirror_of(dir), {}).value(), (CheckpointRef{60, 2}));
  EXPECT_EQ(list_directory(mirror_of(dir) + "/step-60.g2")->size(), 3U);
  for (const CheckpointRef& ref : list_checkpoints(mirror_of(dir)).value()) {
    expect_undamaged(mirror_of(dir), ref);
  }
  EXPECT_EQ(list_directory(dir + "/step-60.g2")->size(), 3U) << "two shards and the manifest";
}

class Crash : public testing::TestWithParam<const char*> {};

TEST_P(Crash, AtThisBoundaryLosesNothing) {
  int deaths = 0;
  for (int pass = 1;; ++pass) {
    const TemporaryDirectory dir;
    ASSERT_TRUE(save_synthetic({dir.path(), {20, 1}, kWorld, 7, 0, {}}).ok());
    const std::string failpoint = GetParam() + (":" + std::to_string(pass));
    if (!victim_dies(failpoint, dir.path())) break;
    ++deaths;
    expect_sound_after_crash(dir.path(), failpoint);
  }
  EXPECT_GT(deaths, 0) << "this fail-point is not passed";
}

INSTANTIATE_TEST_SUITE_P(EveryBoundary, Crash, testing::ValuesIn(kFailpointNames));

}  // namespace
}  // namespace hpctl
