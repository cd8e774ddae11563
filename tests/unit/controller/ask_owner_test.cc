// SPDX-License-Identifier: Apache-2.0
// What a home can say about the owner of a checkpoint directory, and what it cannot.
// tests/integration/directory_owner_test.cc asks homes with jobs, tests/unit/cli/
// slurm_directory_test.cc asks Slurm.
#include "controller/leadership/ask_owner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "common/base/file.h"
#include "controller/engine/store.h"
#include "controller/leadership/local_submission.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

class AskOwnerTest : public ::testing::Test {
 protected:
  OwnerLife ask(const JobIdentity& owner) const {
    return ask_owner(owner, directory_.path(), home_).life;
  }
  void make_rows() const {
    ASSERT_TRUE(make_directories(home_.home()).ok());
    ASSERT_TRUE(Store::open(home_.database(), Store::Mode::kOwner).ok());
  }

  TemporaryDirectory directory_;
  const HomePaths home_{directory_.path() + "/home"};
  const JobIdentity local_ =
      identify_local_job(home_, {"0123", "llama", static_cast<uint32_t>(::geteuid())});
};

TEST_F(AskOwnerTest, HomeThatIsGoneCannotBeAsked) {
  EXPECT_EQ(ask(local_), OwnerLife::kCannotBeAsked);
}

TEST_F(AskOwnerTest, HomeOfThisMachineKnowsItsJobs) {
  make_rows();
  EXPECT_EQ(ask(local_), OwnerLife::kEnded) << "it has no such job";
}

// Between the claim and the home's row it counted as ended, and a second submission took it.
TEST_F(AskOwnerTest, JobThatIsBeingSubmittedLives) {
  make_rows();
  const std::string lock = home_.home() + "/submitting-0123";
  {
    const auto submission = LocalSubmission::begin(home_, local_.uuid);
    ASSERT_TRUE(submission.ok()) << submission.error().message;
    EXPECT_EQ(ask(local_), OwnerLife::kAlive);
    JobIdentity other = local_;
    other.uuid = "4567";
    EXPECT_EQ(ask(other), OwnerLife::kEnded) << "another submission";
    EXPECT_TRUE(is_accessible(lock));
  }
  EXPECT_FALSE(is_accessible(lock));
  EXPECT_EQ(ask(local_), OwnerLife::kEnded);
}

TEST_F(AskOwnerTest, KilledSubmissionHasEnded) {
  make_rows();
  const std::string lock = home_.home() + "/submitting-0123";
  ASSERT_TRUE(write_file_atomic(lock, "").ok());
  EXPECT_EQ(ask(local_), OwnerLife::kEnded);
  EXPECT_FALSE(is_accessible(lock)) << "what it left";
  JobIdentity elsewhere = local_;
  elsewhere.uuid = "/../rows";
  EXPECT_EQ(ask(elsewhere), OwnerLife::kEnded) << "no UUID, and no path";
}

// A link to itself: nobody can open it, not even root.
TEST_F(AskOwnerTest, SubmissionThatCannotBeLookedAtIsNoEnd) {
  make_rows();
  const std::string lock = home_.home() + "/submitting-0123";
  ASSERT_EQ(::symlink(lock.c_str(), lock.c_str()), 0);
  EXPECT_EQ(ask(local_), OwnerLife::kCannotBeAsked);
}

TEST_F(AskOwnerTest, HomeWithThatPathMayBeAnother) {
  make_rows();
  JobIdentity elsewhere = local_;
  elsewhere.machine = "another-machine";
  EXPECT_EQ(ask(elsewhere), OwnerLife::kCannotBeAsked);
}

TEST_F(AskOwnerTest, DamagedRowsCannotBeAsked) {
  ASSERT_TRUE(make_directories(home_.home()).ok());
  ASSERT_TRUE(write_file_atomic(home_.database(), "no database").ok());
  EXPECT_EQ(ask(local_), OwnerLife::kCannotBeAsked);
}

TEST_F(AskOwnerTest, OlderRecordNeedsItsHome) {
  make_rows();
  JobIdentity recorded;
  recorded.job = 3;
  recorded.name = "llama";
  EXPECT_EQ(ask(recorded), OwnerLife::kCannotBeAsked);
}

// A job with a controller of its own and without Slurm.
TEST_F(AskOwnerTest, VerdictEndsAJob) {
  const std::string job_dir = directory_.path() + "/job";
  ASSERT_TRUE(make_directories(job_dir).ok());
  const JobIdentity job = identify_job(job_dir, JobId{7}, {"0123", "llama", 0}, "");
  EXPECT_EQ(ask(job), OwnerLife::kAlive);
  ASSERT_TRUE(write_file_atomic(job_dir + "/verdict", "1 0\n").ok());
  EXPECT_EQ(ask(job), OwnerLife::kEnded);
}

}  // namespace
}  // namespace hpctl
