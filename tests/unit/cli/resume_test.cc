// SPDX-License-Identifier: Apache-2.0
// `hpctl resume` on jobs that left their record, within this process: --dry-run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTrainJob = R"(name: t
workload:
  train:
    model: {preset: tiny}
    data: {path: text.txt, seq_len: 8}
    batch: {global: 1}
    steps: 60
)";

class Resume : public ::testing::Test {
 protected:
  // The job as a controller records it.
  void record(uint64_t job, const std::string& yaml, const std::string& state) {
    const std::string file = home_.directory() + "/job.yaml";
    ASSERT_TRUE(write_file_atomic(file, yaml).ok());
    const CommandRun resolved = run_hpctl({"submit", file, "--local", "--dry-run", "--json"});
    ASSERT_EQ(resolved.status, kExitOk) << resolved.err;
    JobView view;
    view.job = job;
    view.name = "t";
    view.state = state;
    view.job_uuid = "uuid-" + std::to_string(job);
    view.checkpoint_dir = directory(job);
    ASSERT_TRUE(make_directories(directory(job)).ok());
    ASSERT_TRUE(write_status(home_.paths(), view).ok());
    ASSERT_TRUE(write_file_atomic(home_.paths().job_spec(JobId{job}), resolved.out).ok());
  }
  std::string directory(uint64_t job) const {
    return home_.paths().default_checkpoints(JobId{job});
  }
  void save(uint64_t job, const std::string& name) {
    ASSERT_TRUE(make_directories(directory(job) + "/" + name).ok());
    ASSERT_TRUE(write_file_atomic(directory(job) + "/" + name + "/manifest.json", "{}").ok());
  }
  static CommandRun resume(std::vector<std::string> words) {
    words.insert(words.begin(), "resume");
    words.emplace_back("--dry-run");
    return run_hpctl(words);
  }

  ScopedHome home_;
};

TEST_F(Resume, GoesOnFromTheNewestCheckpoint) {
  record(1, kTrainJob, "FAILED");
  save(1, "step-20.g1");
  save(1, "step-40.g2");
  const CommandRun run = resume({"t", "--set", "workload.train.steps=80"});
  EXPECT_EQ(run.status, kExitOk) << run.err;
  EXPECT_THAT(run.err, HasSubstr("hpctl: job 1 t (FAILED) is submitted again; it goes on from "
                                 "step-40.g2 in " +
                                 directory(1) + "\n"));
  EXPECT_THAT(run.out, AllOf(HasSubstr("steps: 80\n"), HasSubstr("dir: " + directory(1)),
                             HasSubstr("resume: latest")));
  EXPECT_THAT(run.out, Not(HasSubstr("batch script"))) << "it was no job of Slurm's";
}

TEST_F(Resume, WithoutACheckpointItBeginsAgain) {
  record(1, kTrainJob, "CANCELLED");
  EXPECT_THAT(resume({"1"}).err, HasSubstr("it has no checkpoint, so it begins at step 0"));
}

TEST_F(Resume, AJobThatLivesIsRefused) {
  record(1, kTrainJob, "RUNNING");
  const CommandRun run = resume({"1"});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.err,
              HasSubstr("job 1 t is RUNNING, and only a job that has ended can be resumed; "
                        "to end it: hpctl cancel 1\n"));
}

TEST_F(Resume, AJobWithoutAStepLeftIsRefused) {
  record(1, kTrainJob, "FINISHED");
  save(1, "step-60.g1");
  const CommandRun run = resume({"1"});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.err, HasSubstr("job 1 t: all 60 steps are trained; to train on, give more of "
                                 "them: --set workload.train.steps=N"));
}

TEST_F(Resume, ADirectoryWhereALaterJobWentOnIsRefused) {
  record(1, kTrainJob, "FAILED");
  save(1, "step-40.g2");
  JobIdentity later;
  later.uuid = "uuid-2";
  later.job = 2;
  later.name = "t";
  later.home = home_.paths().home();
  ASSERT_TRUE(claim_directory(directory(1), later, [](const JobIdentity&) {
                return OwnerAnswer{OwnerLife::kEnded, ""};
              }).ok());
  const CommandRun run = resume({"1"});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.err, AllOf(HasSubstr("belongs to job 2 \"t\""), HasSubstr("resume that job")));
}

TEST_F(Resume, WrongValuesAreNamed) {
  record(1, kTrainJob, "FAILED");
  const CommandRun run = resume({"1", "--set", "nodez=2"});
  EXPECT_EQ(run.status, kExitUsage);
  EXPECT_THAT(run.err, HasSubstr("--set nodez: unknown key \"nodez\"; did you mean \"nodes\"?"));
}

}  // namespace
}  // namespace hpctl::testing
