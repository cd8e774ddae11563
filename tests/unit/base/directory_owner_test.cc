// SPDX-License-Identifier: Apache-2.0
// Two live jobs with one checkpoint directory lose each other's work: the second trains on from the
// first one's weights, and each deletes what the other saved. So a directory has one owner.
#include "common/job/directory_owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "common/base/file.h"
#include "common/job/lineage.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

JobIdentity job_of(const std::string& uuid) {
  JobIdentity job;
  job.uuid = uuid;
  job.name = "job-" + uuid;
  job.user = "alice";
  job.home = "/home/" + uuid;
  return job;
}

AskOwner answers(OwnerLife life, const std::string& words = "it is RUNNING") {
  return [life, words](const JobIdentity&) { return OwnerAnswer{life, words}; };
}

class DirectoryOwnership : public ::testing::Test {
 protected:
  std::string owner_uuid() const {
    const auto owner = read_directory_owner(dir_);
    return owner.ok() && *owner ? (*owner)->owner.uuid : "";
  }
  void record(uint64_t generation, uint64_t job, const std::string& name) {
    GenerationRecord record;
    record.generation = generation;
    record.job = job;
    record.job_name = name;
    ASSERT_TRUE(create_generation(dir_, record).ok());
  }

  TemporaryDirectory temporary_;
  const std::string dir_ = temporary_.path() + "/checkpoints";
  const AskOwner alive_ = answers(OwnerLife::kAlive);
  const AskOwner ended_ = answers(OwnerLife::kEnded, "it has ended");
};

TEST_F(DirectoryOwnership, SecondLiveJobIsRefused) {
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), alive_).ok());
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), alive_).ok()) << "the same job again";
  const auto second = claim_directory(dir_, job_of("b"), alive_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(second.error().message,
              AllOf(HasSubstr(dir_ + " belongs to job \"job-a\" of alice (HPCTL_HOME /home/a): it "
                                     "is RUNNING; choose another directory"),
                    HasSubstr("--take-directory")));
  EXPECT_FALSE(check_claim(dir_, job_of("b"), alive_).ok());
  EXPECT_EQ(owner_uuid(), "a");
  EXPECT_TRUE(check_ownership(dir_, job_of("a")).ok());
  EXPECT_FALSE(check_ownership(dir_, job_of("b")).ok());
}

// As where the file system is not mounted: for the job that owned it that is no verdict.
TEST_F(DirectoryOwnership, OwnedDirectoryThatIsGoneIsStorageThatIsAway) {
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), alive_).ok());
  ASSERT_TRUE(remove_tree(dir_).ok());
  EXPECT_EQ(check_ownership(dir_, job_of("a")).error().code, ErrorCode::kStorage);
  EXPECT_EQ(check_is_there(dir_, "a").error().code, ErrorCode::kStorage);
  ASSERT_TRUE(make_directories(dir_).ok());
  EXPECT_EQ(check_ownership(dir_, job_of("a")).error().code, ErrorCode::kStorage);
  EXPECT_EQ(check_is_there(dir_, "a").error().code, ErrorCode::kStorage);
}

// A symlink or a mount led to another job's directory, and the save went there.
TEST_F(DirectoryOwnership, DirectoryOfAnotherJobIsNotTheClaimedOne) {
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), alive_).ok());
  EXPECT_TRUE(check_is_there(dir_, "a").ok());
  EXPECT_TRUE(check_is_there(dir_, "").ok()) << "the order of an older controller";
  const auto other = check_is_there(dir_, "b");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(other.error().message, HasSubstr("belongs to job \"job-a\" of alice"));
  EXPECT_EQ(check_ownership(dir_, job_of("b")).error().code, ErrorCode::kUnavailable)
      << "the job waits";
  GenerationRecord own;
  own.generation = 1;
  own.job_uuid = "b";
  ASSERT_TRUE(create_generation(dir_, own).ok());
  EXPECT_EQ(check_ownership(dir_, job_of("b")).error().code, ErrorCode::kFailedPrecondition)
      << "it was taken";
  ASSERT_TRUE(write_file_atomic(dir_ + "/owner.json", "").ok());
  EXPECT_EQ(check_is_there(dir_, "a").error().code, ErrorCode::kStorage);
}

TEST_F(DirectoryOwnership, SymlinkIsNoSecondDirectory) {
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), alive_).ok());
  const std::string link = temporary_.path() + "/link";
  ASSERT_EQ(::symlink(dir_.c_str(), link.c_str()), 0);
  EXPECT_FALSE(claim_directory(link, job_of("b"), alive_).ok());
}

TEST_F(DirectoryOwnership, OwnerThatCannotBeAskedCountsAsAlive) {
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), alive_).ok());
  const auto second = claim_directory(
      dir_, job_of("b"), answers(OwnerLife::kCannotBeAsked, "slurmctld does not answer"));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(second.error().message, HasSubstr("slurmctld does not answer"));
  EXPECT_EQ(owner_uuid(), "a");
}

TEST_F(DirectoryOwnership, EndedOwnerIsFollowed) {
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), alive_).ok());
  const auto claim = claim_directory(dir_, job_of("b"), ended_);
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  EXPECT_EQ(claim->former.value_or(JobIdentity{}).uuid, "a");
  EXPECT_FALSE(claim->taken);
  EXPECT_EQ(owner_uuid(), "b");
  EXPECT_EQ(list_directory(dir_).value(), std::vector<std::string>{"owner.json"});
}

TEST_F(DirectoryOwnership, TakingFromLiveOwnerIsRecorded) {
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), alive_).ok());
  ASSERT_TRUE(claim_directory(dir_, job_of("b"), alive_, LivingOwner::kTake).ok());
  const auto owner = read_directory_owner(dir_);
  ASSERT_TRUE(owner.ok() && *owner);
  EXPECT_EQ((*owner)->owner.uuid, "b");
  EXPECT_EQ((*owner)->former.value_or(JobIdentity{}).uuid, "a");
  EXPECT_TRUE((*owner)->taken);
  const auto again = claim_directory(dir_, job_of("b"), alive_);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->taken) << "the job's controller tells it";
  EXPECT_FALSE(check_ownership(dir_, job_of("a")).ok());
}

TEST_F(DirectoryOwnership, NewestRecordOwnsOlderDirectory) {
  record(1, 7, "llama");
  record(2, 8, "llama");
  JobIdentity asked;
  const auto claim = claim_directory(dir_, job_of("b"), [&](const JobIdentity& owner) {
    asked = owner;
    return OwnerAnswer{OwnerLife::kAlive, "it is RUNNING"};
  });
  ASSERT_FALSE(claim.ok());
  EXPECT_EQ(asked.job, 8U);
  EXPECT_EQ(asked.name, "llama");
  EXPECT_THAT(claim.error().message,
              HasSubstr("job 8 \"llama\" (by its newest generation record)"));

  JobIdentity same = job_of("b");
  same.job = 8;
  same.name = "llama";
  ASSERT_TRUE(claim_directory(dir_, same, alive_).ok()) << "a controller of a newer release";
  EXPECT_EQ(owner_uuid(), "b");
}

// It was submitted by a release that knows no owners, and left owner.json as it was.
TEST_F(DirectoryOwnership, LiveJobOfAnOlderReleaseKeepsTheDirectory) {
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), ended_).ok());
  record(1, 8, "older");
  const auto ask = [](OwnerLife older) {
    return [older](const JobIdentity& owner) {
      return OwnerAnswer{owner.name == "older" ? older : OwnerLife::kEnded, "asked"};
    };
  };
  const auto refused = claim_directory(dir_, job_of("b"), ask(OwnerLife::kAlive));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("belongs to job 8 \"older\""));
  EXPECT_FALSE(check_claim(dir_, job_of("b"), ask(OwnerLife::kAlive)).ok());
  EXPECT_EQ(owner_uuid(), "a");
  EXPECT_TRUE(claim_directory(dir_, job_of("b"), ask(OwnerLife::kEnded)).ok());
  EXPECT_EQ(owner_uuid(), "b");
}

// Its predecessor was recorded by an older release, which the claim does not ask again.
TEST_F(DirectoryOwnership, RecordOfTheFormerOwnerIsNoOtherUser) {
  record(1, 8, "older");
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), ended_).ok());
  std::vector<std::string> asked;
  const auto claim = claim_directory(dir_, job_of("b"), [&](const JobIdentity& owner) {
    asked.push_back(owner.name);
    return OwnerAnswer{OwnerLife::kEnded, "asked"};
  });
  EXPECT_TRUE(claim.ok());
  EXPECT_EQ(asked, std::vector<std::string>{"job-a"});
}

TEST_F(DirectoryOwnership, StorageErrorIsNotAbsence) {
  ASSERT_TRUE(make_directories(dir_).ok());
  const std::string file = dir_ + "/owner.json";
  ASSERT_EQ(::symlink(file.c_str(), file.c_str()), 0);  // ELOOP
  const auto claim = claim_directory(dir_, job_of("b"), ended_);
  ASSERT_FALSE(claim.ok());
  EXPECT_THAT(claim.error().message, HasSubstr(file));
}

TEST_F(DirectoryOwnership, UndoneClaimLeavesTheFormerOwner) {
  const auto first = claim_directory(dir_, job_of("a"), ended_);
  ASSERT_TRUE(first.ok());
  const auto second = claim_directory(dir_, job_of("b"), ended_);
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(undo_claim(dir_, job_of("b"), *second).ok());
  EXPECT_EQ(owner_uuid(), "a");
  ASSERT_TRUE(undo_claim(dir_, job_of("a"), *first).ok());
  EXPECT_TRUE(list_directory(dir_).value().empty());
}

// Every claim finds that the others live, as two submissions at the same moment do.
TEST_F(DirectoryOwnership, RacingClaimsHaveOneWinner) {
  for (int round = 0; round < 20; ++round) {
    const std::string dir = dir_ + std::to_string(round);
    if (round % 2 == 1) {
      ASSERT_TRUE(claim_directory(dir, job_of("former"), alive_).ok());
    }
    std::atomic<int> winners{0};
    std::vector<std::thread> claimers;
    for (int i = 0; i < 4; ++i) {
      claimers.emplace_back([&, i] {
        const auto claim =
            claim_directory(dir, job_of(std::to_string(i)), [](const JobIdentity& owner) {
              return OwnerAnswer{owner.uuid == "former" ? OwnerLife::kEnded : OwnerLife::kAlive,
                                 "asked"};
            });
        if (claim.ok()) ++winners;
      });
    }
    for (std::thread& claimer : claimers) claimer.join();
    EXPECT_EQ(winners, 1) << "round " << round;
  }
}

// A claimer that died between its two steps does not block the directory for ever.
TEST_F(DirectoryOwnership, AttemptOfAnEndedJobIsCleared) {
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), ended_).ok());
  ASSERT_TRUE(create_file_exclusive(dir_ + "/owner-next.json",
                                    to_json_text(DirectoryOwner{job_of("dead"), {}, false}))
                  .ok());
  ASSERT_TRUE(claim_directory(dir_, job_of("b"), ended_).ok());
  EXPECT_EQ(owner_uuid(), "b");
}

// It blocked the directory for ever, --take-directory or not.
TEST_F(DirectoryOwnership, AttemptOfAnUnreachableJobIsOverridden) {
  const AskOwner silent = answers(OwnerLife::kCannotBeAsked, "its home is gone");
  const std::string next = dir_ + "/owner-next.json";
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), ended_).ok());
  for (const std::string& attempt :
       {to_json_text(DirectoryOwner{job_of("gone"), {}, false}), std::string("{")}) {
    ASSERT_TRUE(create_file_exclusive(next, attempt).ok());
    const std::string self = attempt == "{" ? "c" : "b";
    EXPECT_FALSE(claim_directory(dir_, job_of(self), silent).ok());
    EXPECT_TRUE(claim_directory(dir_, job_of(self), silent, LivingOwner::kTakeUnreachable).ok());
    EXPECT_EQ(owner_uuid(), self);
  }
}

TEST_F(DirectoryOwnership, OnlyUnreachableOwnerIsTakenFrom) {
  ASSERT_TRUE(claim_directory(dir_, job_of("a"), alive_).ok());
  const auto refused = claim_directory(dir_, job_of("b"), alive_, LivingOwner::kTakeUnreachable);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  const AskOwner silent = answers(OwnerLife::kCannotBeAsked, "its home is gone");
  const auto taken = claim_directory(dir_, job_of("b"), silent, LivingOwner::kTakeUnreachable);
  ASSERT_TRUE(taken.ok());
  EXPECT_TRUE(taken->taken);
  EXPECT_EQ(owner_uuid(), "b");
}

}  // namespace
}  // namespace hpctl
