// SPDX-License-Identifier: Apache-2.0
// `hpctl rm` and `hpctl prune`: what goes, what stays, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/job/directory_owner.h"
#include "controller/publish/status_files.h"
#include "hpctl/exit_codes.h"
#include "tests/support/command_run.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

using test::CommandRun;
using test::run_hpctl;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kDayMs = 86'400'000;

class JobRemoval : public ::testing::Test {
 protected:
  // A job that the controller knows, with its files.
  void add(uint64_t job, const std::string& state, int64_t days_ago = 0) {
    JobView view;
    view.job = job;
    view.name = "t" + std::to_string(job);
    view.state = state;
    view.job_uuid = "uuid-" + std::to_string(job);
    view.checkpoint_dir = checkpoints(job);
    view.ended_at = WallTime(SystemClock().wall_ms() - days_ago * kDayMs);
    ASSERT_TRUE(make_directories(home_.paths().job_logs(JobId{job})).ok());
    ASSERT_TRUE(write_status(home_.paths(), view).ok());
    ASSERT_TRUE(write_file_atomic(home_.paths().rank_log(JobId{job}, Rank{0}), "words\n").ok());
    v1::JobStatus status;
    status.set_job(job);
    status.set_name(view.name);
    status.set_state(state);
    status.set_job_uuid(view.job_uuid);
    status.set_checkpoint_dir(view.checkpoint_dir);
    status.set_ended_wall_ms(view.ended_at.unix_ms());
    controller_.jobs.push_back(status);
  }
  void save(uint64_t job) { ASSERT_TRUE(make_directories(checkpoints(job) + "/step-20.g1").ok()); }
  std::string directory(uint64_t job) const { return home_.paths().job(JobId{job}); }
  std::string checkpoints(uint64_t job) const {
    return home_.paths().default_checkpoints(JobId{job});
  }

  ScopedHome home_;
  ScriptedController controller_{home_.paths()};
};

TEST_F(JobRemoval, EverythingButCheckpointsGoes) {
  add(1, "FAILED");
  save(1);
  const CommandRun run = run_hpctl({"rm", "t1"});
  EXPECT_EQ(run.status, kExitOk) << run.err;
  EXPECT_EQ(run.out, "job 1 t1 is removed; its checkpoints stay in " + checkpoints(1) + "\n");
  EXPECT_THAT(controller_.removed(), ElementsAre("1"));
  EXPECT_TRUE(is_accessible(checkpoints(1) + "/step-20.g1"));
  EXPECT_FALSE(is_accessible(home_.paths().job_logs(JobId{1})));
  EXPECT_FALSE(is_accessible(home_.paths().job_status(JobId{1})));
}

TEST_F(JobRemoval, CheckpointsGoWhenTheyAreAskedFor) {
  add(1, "FINISHED");
  save(1);
  const CommandRun run = run_hpctl({"rm", "1", "--checkpoints", "--json"});
  EXPECT_EQ(run.status, kExitOk) << run.err;
  EXPECT_EQ(run.out, "{\"job\":1,\"name\":\"t1\",\"checkpoints\":\"\"}\n");
  EXPECT_FALSE(is_accessible(directory(1)));
}

TEST_F(JobRemoval, CheckpointsThatALaterJobHasAreRefused) {
  add(1, "FAILED");
  save(1);
  JobIdentity later;
  later.uuid = "uuid-2";
  later.job = 2;
  later.name = "later";
  ASSERT_TRUE(claim_directory(checkpoints(1), later, [](const JobIdentity&) {
                return OwnerAnswer{OwnerLife::kEnded, ""};
              }).ok());
  const CommandRun run = run_hpctl({"rm", "1", "--checkpoints"});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("belong to job 2 \"later\""), HasSubstr("leave --checkpoints out")));
  EXPECT_THAT(controller_.removed(), IsEmpty());
  EXPECT_TRUE(is_accessible(home_.paths().job_status(JobId{1}))) << "nothing was removed";
}

TEST_F(JobRemoval, AJobThatLivesIsRefused) {
  add(1, "RUNNING");
  const CommandRun run = run_hpctl({"rm", "1"});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.err, HasSubstr("job 1 t1 is RUNNING; only a job that has ended can be removed; "
                                 "to end it: hpctl cancel 1"));
  EXPECT_THAT(controller_.removed(), IsEmpty());
}

TEST_F(JobRemoval, ARefusalOfTheControllerLeavesTheFiles) {
  add(1, "FAILED");
  controller_.remove_status = {grpc::StatusCode::FAILED_PRECONDITION, "its nodes are ending"};
  const CommandRun run = run_hpctl({"rm", "1"});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_EQ(run.err, "hpctl: its nodes are ending\n");
  EXPECT_TRUE(is_accessible(home_.paths().job_logs(JobId{1})));
}

TEST_F(JobRemoval, AnInterruptedRemovalIsCompleted) {
  add(1, "FAILED");
  controller_.jobs.clear();  // the controller has forgotten it, and files are left
  controller_.remove_status = {grpc::StatusCode::NOT_FOUND, "there is no job 1"};
  EXPECT_EQ(run_hpctl({"rm", "1"}).status, kExitOk);
  EXPECT_FALSE(is_accessible(directory(1)));
  EXPECT_EQ(run_hpctl({"rm", "1"}).status, kExitFailed) << "now there is none";
}

TEST_F(JobRemoval, PruneTakesTheJobsThatEndedLongAgo) {
  add(1, "FINISHED", 40);
  add(2, "FAILED", 20);
  add(3, "RUNNING", 40);
  const CommandRun dry = run_hpctl({"prune", "--keep", "30d", "--dry-run"});
  EXPECT_EQ(dry.status, kExitOk) << dry.err;
  EXPECT_THAT(dry.out, AllOf(HasSubstr("job 1 t1, which is FINISHED since "),
                             HasSubstr(", would be removed\n"), Not(HasSubstr("job 2"))));
  EXPECT_THAT(controller_.removed(), IsEmpty());
  const CommandRun run = run_hpctl({"prune", "--keep", "30d"});
  EXPECT_EQ(run.status, kExitOk) << run.err;
  EXPECT_THAT(controller_.removed(), ElementsAre("1"));
  EXPECT_FALSE(is_accessible(directory(1)));
  EXPECT_TRUE(is_accessible(directory(2)));
  EXPECT_TRUE(is_accessible(directory(3)));
  EXPECT_EQ(run_hpctl({"prune"}).status, kExitUsage);
  EXPECT_EQ(run_hpctl({"prune", "--keep", "x"}).status, kExitUsage);
}

}  // namespace
}  // namespace hpctl::testing
