// SPDX-License-Identifier: Apache-2.0
// Two Slurm jobs with one checkpoint directory: the second is refused while slurmctld says that the
// first goes on, or says nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/job/directory_owner.h"
#include "hpctl/exit_codes.h"
#include "tests/unit/cli/slurm_submit.h"

namespace hpctl::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SlurmDirectory : public SlurmSubmit {
 protected:
  void SetUp() override {
    SlurmSubmit::SetUp();
    use("");
  }
  // The job file, with this in its section `slurm`.
  void use(const std::string& slurm) {
    write(home_.directory() + "/job.yaml",
          std::string(kSlurmJob) + "checkpoint: {dir: " + dir() + "}\nslurm: {" + slurm + "}\n");
  }
  std::string dir() const { return home_.directory() + "/shared"; }
  std::string job_dir(const std::string& key) const {
    return home_.paths().home() + "/jobs/submit-" + key;
  }
  JobIdentity owner() const {
    const auto found = read_directory_owner(dir());
    return found.ok() && *found ? (*found)->owner : JobIdentity{};
  }
  JobIdentity submit_first() {
    const CommandResult first = submit();
    EXPECT_EQ(first.exit_code, kExitOk) << first.err;
    return owner();
  }
  void slurm_says_of(const JobIdentity& job, const std::string& state) {
    SlurmJob row;
    row.id.value = job.job;
    row.state = state;
    row.comment = "submit-" + job.uuid;
    write(slurm() + "/job-" + std::to_string(job.job) + ".json", nlohmann::json(row).dump());
  }
};

TEST_F(SlurmDirectory, SecondJobIsRefusedWhileFirstIsQueued) {
  const JobIdentity first = submit_first();
  EXPECT_EQ(first.job, 100U);
  EXPECT_EQ(first.cluster, "c1");
  EXPECT_EQ(first.job_dir, job_dir(first.uuid));
  const CommandResult second = submit();
  EXPECT_EQ(second.exit_code, kExitFailed) << second.out;
  EXPECT_THAT(second.err,
              AllOf(HasSubstr("belongs to Slurm job 100 \"c\""),
                    HasSubstr("(cluster c1): it is PENDING; "), HasSubstr("--take-directory")));
  EXPECT_THAT(text_of(slurm() + "/jobs"), ::testing::Not(HasSubstr("101 ")));
}

TEST_F(SlurmDirectory, EndedOrForgottenJobIsFollowed) {
  slurm_says_of(submit_first(), "FAILED");
  EXPECT_EQ(submit().exit_code, kExitOk);
  EXPECT_EQ(owner().job, 101U);
  write(slurm() + "/faults",
        "job refuse not_found no such job\njob refuse not_found no such job\n");
  EXPECT_EQ(submit().exit_code, kExitOk);
  EXPECT_EQ(owner().job, 102U);
}

TEST_F(SlurmDirectory, NumberOfAnotherJobSaysNothing) {
  submit_first();
  SlurmJob other;
  other.id.value = 100;
  other.state = "RUNNING";
  other.comment = "submit-0123";
  other.work_dir = job_dir("0123");
  write(slurm() + "/job-100.json", nlohmann::json(other).dump());
  const CommandResult second = submit();
  EXPECT_EQ(second.exit_code, kExitOk) << second.err;
}

TEST_F(SlurmDirectory, SilentSlurmctldMeansAlive) {
  submit_first();
  write(slurm() + "/faults", "job refuse unavailable slurmctld does not answer\n");
  const CommandResult second = submit();
  EXPECT_EQ(second.exit_code, kExitNoController) << second.out;
  EXPECT_THAT(second.err, AllOf(HasSubstr("slurmctld does not answer"),
                                HasSubstr("if that job has ended, submit with --take-directory")));
}

TEST_F(SlurmDirectory, FinalVerdictEndsAJobWhateverSlurmSays) {
  const JobIdentity first = submit_first();
  write(first.job_dir + "/verdict", "0 0\n");
  EXPECT_EQ(submit().exit_code, kExitOk);
  EXPECT_EQ(owner().job, 101U);
}

// The job that it continues may live still; its controller asks when it starts.
TEST_F(SlurmDirectory, DependentJobIsAcceptedAndClaimsLater) {
  const JobIdentity first = submit_first();
  use("dependency: 'afterany:100'");
  const CommandResult second = submit();
  EXPECT_EQ(second.exit_code, kExitOk) << second.err;
  EXPECT_EQ(owner().uuid, first.uuid);
}

TEST_F(SlurmDirectory, TakingFromLiveJobIsRecorded) {
  const JobIdentity first = submit_first();
  const CommandResult second = submit({"--take-directory"});
  EXPECT_EQ(second.exit_code, kExitOk) << second.err;
  const auto found = read_directory_owner(dir());
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->owner.job, 101U);
  EXPECT_EQ((*found)->former.value_or(JobIdentity{}).uuid, first.uuid);
  EXPECT_TRUE((*found)->taken);
}

// Somebody else claims the directory between the look and the submission.
TEST_F(SlurmDirectory, JobThatLostTheRaceIsCancelled) {
  DirectoryOwner other;
  other.owner.uuid = "0123";
  other.owner.name = "other";
  other.owner.cluster = "c2";
  other.owner.job_dir = "/nonexistent";
  const std::string text = home_.directory() + "/owner.json";
  write(text, to_json_text(other));
  write(slurm() + "/faults",
        "submit meanwhile mkdir -p " + dir() + " && cp " + text + " " + dir() + "\n");
  const CommandResult result = submit();
  EXPECT_EQ(result.exit_code, kExitNoController) << result.out;
  EXPECT_THAT(result.err, HasSubstr("it belongs to cluster c2, and this is c1"));
  EXPECT_EQ(text_of(slurm() + "/cancelled"), "100\n");
}

}  // namespace
}  // namespace hpctl::testing
