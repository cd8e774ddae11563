// SPDX-License-Identifier: Apache-2.0
// PruneCheckpoints as the controller carries it out, on real files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <variant>

#include "common/base/file.h"
#include "controller/engine/prune.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"

namespace hpctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class PruneAction : public testing::Test {
 protected:
  void SetUp() override {
    spec_.checkpoint.dir = dir_.path();
    spec_.checkpoint.keep = 1;
    GenerationRecord record;
    record.generation = 1;
    ASSERT_TRUE(create_generation(dir_.path(), record).ok());
    for (const uint64_t step : {10, 20}) {
      ASSERT_TRUE(save_synthetic({dir_.path(), {step, 1}, 2, 1, 0, {}}).ok());
    }
  }
  std::optional<core::EventBody> prune() {
    return prune_checkpoints(ActionId{Seq{5}, 0}, order_, spec_, [this] { return goes_on_; });
  }
  core::CheckpointsPruned pruned() { return std::get<core::CheckpointsPruned>(prune().value()); }
  size_t count() const { return list_checkpoints(dir_.path()).value().size(); }
  std::string shard() const { return dir_ / "step-20.g1/shard-00000.safetensors"; }

  TemporaryDirectory dir_;
  JobSpec spec_;
  core::PruneCheckpoints order_{JobId{1}, Generation{1}};
  bool goes_on_ = true;
};

TEST_F(PruneAction, TellsWhatIsVerifiedAndDeleted) {
  const auto done = pruned();
  EXPECT_EQ(done.action, (ActionId{Seq{5}, 0}));
  EXPECT_EQ(done.verified, "step-20.g1");
  EXPECT_THAT(done.deleted, ElementsAre("step-10.g1"));
  EXPECT_EQ(done.problem, "");
  EXPECT_EQ(pruned().verified, "") << "repeated, it has nothing to do";
}

TEST_F(PruneAction, TellsTheDamagedFile) {
  ASSERT_EQ(::truncate(shard().c_str(), 100), 0);
  const auto done = pruned();
  EXPECT_THAT(done.problem, HasSubstr("step-20.g1/shard-00000.safetensors is damaged"));
  EXPECT_THAT(done.deleted, IsEmpty());
  EXPECT_EQ(count(), 2U);
}

TEST_F(PruneAction, QuestionNamesTheNewestAndDeletesNothing) {
  order_.asks = true;
  const auto done = pruned();
  EXPECT_EQ(done.to_verify, "step-20.g1");
  EXPECT_EQ(done.verified, "");
  EXPECT_THAT(done.deleted, IsEmpty());
  EXPECT_EQ(count(), 2U);
  spec_.checkpoint.keep = 2;
  EXPECT_EQ(pruned().to_verify, "") << "nothing is to be deleted";
}

// A node has read it; the controller does not once more.
TEST_F(PruneAction, WhatANodeVerifiedIsNotReadHere) {
  ASSERT_EQ(::truncate(shard().c_str(), 100), 0);
  order_.verified = "step-20.g1";
  order_.verified_by = "n1";
  const auto done = pruned();
  EXPECT_EQ(done.verified, "step-20.g1");
  EXPECT_THAT(done.deleted, ElementsAre("step-10.g1"));
}

// A save that came while the node read is not verified, so what was verified stays.
TEST_F(PruneAction, OnlyWhatIsOlderThanTheVerifiedOneGoes) {
  ASSERT_TRUE(save_synthetic({dir_.path(), {30, 1}, 2, 1, 0, {}}).ok());
  order_.verified = "step-20.g1";
  EXPECT_THAT(pruned().deleted, ElementsAre("step-10.g1"));
  EXPECT_EQ(count(), 2U);
}

TEST_F(PruneAction, VerifiedCheckpointThatIsGoneDeletesNothing) {
  for (const char* name : {"step-40.g1", "no-checkpoint"}) {
    order_.verified = name;
    const auto done = pruned();
    EXPECT_THAT(done.problem, HasSubstr(std::string(name) + " was verified and counts no more"));
    EXPECT_THAT(done.deleted, IsEmpty());
  }
  EXPECT_EQ(count(), 2U);
}

TEST_F(PruneAction, StorageThatFailsIsNoDamage) {
  ASSERT_EQ(::unlink(shard().c_str()), 0);
  ASSERT_EQ(::symlink("shard-00000.safetensors", shard().c_str()), 0);
  const auto failed = std::get<core::ActionFailed>(prune().value());
  EXPECT_THAT(failed.reason, HasSubstr("step-20.g1/shard-00000.safetensors"));
  EXPECT_FALSE(failed.permanent);
  EXPECT_EQ(count(), 2U);
}

TEST_F(PruneAction, KeyOfTheJobSaysHowCloselyItLooks) {
  std::string bytes = read_file(shard()).value();
  bytes[9] = static_cast<char>(~bytes[9]);  // of the header: in no stored range
  ASSERT_TRUE(write_file_atomic(shard(), bytes).ok());
  spec_.checkpoint.verify_before_delete = VerifyDepth::kFull;
  EXPECT_THAT(pruned().problem, HasSubstr("crc32c does not match"));
  spec_.checkpoint.verify_before_delete = VerifyDepth::kSample;
  EXPECT_THAT(pruned().deleted, ElementsAre("step-10.g1"));
}

TEST_F(PruneAction, WithdrawnOrderSaysNothingAndDeletesNothing) {
  goes_on_ = false;
  EXPECT_FALSE(prune().has_value());
  EXPECT_EQ(count(), 2U);
}

// A controller that was away while another one took over.
TEST_F(PruneAction, OlderGenerationDeletesNothing) {
  GenerationRecord record;
  record.generation = 2;
  record.parent = 1;
  record.start_step = 10;
  ASSERT_TRUE(create_generation(dir_.path(), record).ok());
  EXPECT_THAT(pruned().problem, HasSubstr("generation 2 is newer than 1"));
  EXPECT_EQ(count(), 2U);
}

}  // namespace
}  // namespace hpctl
