// SPDX-License-Identifier: Apache-2.0
// Where a job's time goes: every millisecond of its life in one part, by the clock of the test.
#include <gtest/gtest.h>

#include "common/job/time_account.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

// Submitted at 0 of its own time; its first step is completed after 400 ms.
class LostTime : public ::testing::Test {
 protected:
  void SetUp() override {
    id = shell.submit(small_job("demo"));
    submitted_ms = shell.now_ms;
    shell.now_ms += 400;
    shell.settle();
    shell.progress(id, 1);
    ASSERT_EQ(job().state, JobState::kRunning);
  }
  const Job& job() const { return shell.job(id); }
  TimeSpent spent(const StepWaits& waits = {}) const {
    return time_spent(job(), shell.now_ms, waits);
  }
  int64_t training_ms() const {
    return account_of(spent(), shell.now_ms - submitted_ms, true).training_ms;
  }
  void progress(uint64_t step, const StepWaits& waits) {
    shell.feed(GenerationProgressed{id, job().generation, step, 0, waits});
  }
  // Its generation is prepared, with that much time before each kind of answer.
  void recover_slowly(int64_t ms) {
    do {
      shell.now_ms += ms;
    } while (shell.settle_one_kind());
    shell.now_ms -= ms;
  }

  FakeShell shell;
  JobId id;
  int64_t submitted_ms = 0;
};

TEST_F(LostTime, ALossIsDividedByWhatIsDoneMeanwhile) {
  shell.now_ms += 1'000;
  progress(10, {});
  shell.now_ms += 70;
  shell.exit_worker(id, 3, 0, 9, 10);
  EXPECT_EQ(spent().notice_ms, 70);
  // StopWorkers, FindCheckpoint and RecordGeneration, then StartWorkers.
  recover_slowly(20);
  EXPECT_EQ(spent().decide_ms, 60);
  EXPECT_EQ(spent().restart_ms, 20);
  shell.now_ms += 30;
  shell.progress(id, 1);
  EXPECT_EQ(spent().restart_ms, 50);
  shell.now_ms += 500;
  shell.progress(id, 10);
  EXPECT_EQ(spent().repeat_ms, 500);
  EXPECT_EQ(spent().lost_ms(), job().lost_ms);
  EXPECT_EQ(job().lost_ms, 70 + 60 + 50 + 500);
  shell.now_ms += 250;
  EXPECT_EQ(spent().start_ms, 400);
  EXPECT_EQ(training_ms(), 1'250);
}

TEST_F(LostTime, ALostNodeIsWaitedFor) {
  shell.feed(NodeLost{id, "n1", shell.node(id, "n1").boot_id, "no heartbeat"});
  shell.now_ms += 40;
  shell.settle_kind("StopWorkers");
  ASSERT_EQ(job().stage, PlanStage::kWaitNodes);
  EXPECT_EQ(spent().decide_ms, 40);
  shell.now_ms += 5'000;
  EXPECT_EQ(spent().wait_ms, 5'000) << "as of now";
  shell.settle();
  shell.now_ms += 10;
  shell.progress(id, 1);
  EXPECT_EQ(spent().wait_ms, 5'000);
  EXPECT_EQ(spent().restart_ms, 10);
  EXPECT_EQ(job().lost_ms, spent().lost_ms());
}

TEST_F(LostTime, WaitsOfStepsCountOnceAndNotWhereTheTimeHasANameAlready) {
  EXPECT_EQ(spent().waits, StepWaits{});
  shell.now_ms += 1'000;
  progress(10, {200, 30});
  EXPECT_EQ(spent().waits, (StepWaits{200, 30}));
  EXPECT_EQ(training_ms(), 770);
  progress(12, {250, 20});
  EXPECT_EQ(spent().waits, (StepWaits{250, 30})) << "a mean that fell takes nothing back";
  EXPECT_EQ(spent({300, 40}).waits, (StepWaits{300, 40})) << "seen, not yet told";
  progress(12, {300, 40});
  EXPECT_EQ(spent().waits, (StepWaits{300, 40})) << "no step further";
  // What the next generation waits until it is where the job was is a part of the loss.
  shell.exit_worker(id, 3, 0, 9, 12);
  shell.settle();
  progress(1, {10, 10});
  EXPECT_EQ(spent({400, 400}).waits, (StepWaits{300, 40}));
  progress(12, {60, 50});
  EXPECT_EQ(spent().waits, (StepWaits{300, 40}));
  progress(13, {61, 50});
  EXPECT_EQ(spent().waits, (StepWaits{301, 40}));
}

TEST_F(LostTime, ASuspensionIsNeitherTrainingNorLost) {
  shell.now_ms += 100;
  shell.feed(SuspensionChanged{id, true});
  shell.now_ms += 60'000;
  EXPECT_EQ(spent().suspended_ms, 60'000) << "as of now";
  EXPECT_EQ(training_ms(), 100);
  shell.feed(SuspensionChanged{id, false});
  shell.now_ms += 50;
  shell.exit_worker(id, 3, 0, 9, 0);
  EXPECT_EQ(spent().notice_ms, 150) << "the last step was before it, the time between did not pass";
  // Also one within a loss.
  shell.feed(SuspensionChanged{id, true});
  shell.now_ms += 1'000;
  EXPECT_EQ(lost_ms(job(), shell.now_ms), 150);
  shell.feed(SuspensionChanged{id, false});
  shell.settle();
  shell.now_ms += 30;
  shell.progress(id, 1);
  EXPECT_EQ(spent().suspended_ms, 61'000);
  EXPECT_EQ(spent().restart_ms, 30);
  EXPECT_EQ(job().lost_ms, 180);
  // And one that the job's end ends.
  shell.feed(SuspensionChanged{id, true});
  shell.now_ms += 1'000;
  shell.exit_worker(id, 3, 93, 0, 1, "no");
  ASSERT_EQ(job().state, JobState::kFailed);
  EXPECT_EQ(spent().suspended_ms, 62'000);
  EXPECT_EQ(account_of(spent(), shell.now_ms - submitted_ms, true).wall_ms, 400 + 180 + 62'000);
}

}  // namespace
}  // namespace hpctl::core
