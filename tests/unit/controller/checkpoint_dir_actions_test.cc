// SPDX-License-Identifier: Apache-2.0
// Actions on the checkpoint directory: repetition is harmless, another's record is not ours, and
// nothing is damaged on one reader's word.
#include "controller/engine/checkpoint_dir_actions.h"

#include "controller/engine/damage.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/job/exclusion.h"
#include "common/job/lineage.h"
#include "controller/leadership/requeue_carryover.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/checkpoint/manifest_format.h"

namespace hpctl {
namespace {

const ActionId kId{Seq{5}, 0};

class Lineage : public testing::Test {
 protected:
  Lineage() : paths_(dir_ / "home") {
    spec_.checkpoint.dir = dir_ / "ckpt";
    EXPECT_TRUE(make_directories(paths_.job(JobId{1})).ok());
  }

  core::RecordGeneration action(uint64_t generation, uint64_t parent, uint64_t start_step) const {
    core::RecordGeneration action;
    action.job = JobId{1};
    action.generation = Generation{generation};
    action.parent = Generation{parent};
    action.start_step = start_step;
    return action;
  }
  core::EventBody record(const core::RecordGeneration& wanted, int64_t wall_ms = 1) {
    core::State state;
    state.jobs[JobId{1}].spec.name = "t";
    return record_generation(kId, wanted, make_record(kId, wanted, state, wall_ms),
                             spec_.checkpoint.dir, paths_);
  }
  void commit_checkpoint(const std::string& name, const std::string& manifest) {
    ASSERT_TRUE(make_directories(spec_.checkpoint.dir + "/" + name).ok());
    std::ofstream(spec_.checkpoint.dir + "/" + name + "/manifest.json") << manifest;
  }

  // A whole checkpoint of generation 1.
  void save(uint64_t step) {
    const auto saved = save_synthetic({spec_.checkpoint.dir, {step, 1}, 1, step, 0, {}});
    ASSERT_TRUE(saved.ok()) << saved.error().message;
  }

  TemporaryDirectory dir_;
  HomePaths paths_;
  JobSpec spec_;
};

TEST_F(Lineage, ARepeatedRecordIsOurs) {
  EXPECT_TRUE(std::holds_alternative<core::GenerationRecorded>(record(action(1, 0, 0), 1)));
  EXPECT_TRUE(std::holds_alternative<core::GenerationRecorded>(record(action(1, 0, 0), 2)))
      << "the same but for its time: an attempt of ours before a crash";
}

// A controller that was away between asking and doing.
TEST_F(Lineage, TheRendezvousOfANewerGenerationStays) {
  record(action(10, 9, 0));
  record(action(9, 8, 0));
  EXPECT_TRUE(is_accessible(paths_.rendezvous(JobId{1}, Generation{10})));
  EXPECT_NE(rendezvous_port(paths_, JobId{1}, Generation{10}), 0);
}

// The rendezvous files made the directory of a running job again, and nobody saw that it was gone.
TEST_F(Lineage, GoneJobDirectoryIsNotMadeAgain) {
  record(action(1, 0, 0));
  ASSERT_TRUE(remove_tree(paths_.job(JobId{1})).ok());
  const auto event = record(action(2, 1, 0));
  const auto* failed = std::get_if<core::ActionFailed>(&event);
  ASSERT_NE(failed, nullptr);
  EXPECT_FALSE(failed->permanent);
  EXPECT_EQ(failed->reason, "the directory " + paths_.job(JobId{1}) + " is gone");
  EXPECT_FALSE(is_accessible(paths_.job(JobId{1})));
  EXPECT_EQ(read_lineage(spec_.checkpoint.dir).value().size(), 1U);
}

TEST_F(Lineage, AnothersRecordIsTaken) {
  EXPECT_TRUE(std::holds_alternative<core::GenerationRecorded>(record(action(1, 0, 0))));
  EXPECT_TRUE(std::holds_alternative<core::GenerationTaken>(record(action(1, 0, 7))));
}

TEST_F(Lineage, ThePortOfAGenerationStaysAndOlderRendezvousGo) {
  record(action(1, 0, 0));
  const uint16_t port = rendezvous_port(paths_, JobId{1}, Generation{1});
  EXPECT_NE(port, 0);
  record(action(1, 0, 0));
  EXPECT_EQ(rendezvous_port(paths_, JobId{1}, Generation{1}), port);
  record(action(2, 1, 0));
  EXPECT_FALSE(is_accessible(paths_.rendezvous(JobId{1}, Generation{1})));
  EXPECT_TRUE(is_accessible(paths_.rendezvous(JobId{1}, Generation{2})));
}

// The record of an order that was withdrawn is not another controller's, and began nothing.
TEST_F(Lineage, WithdrawnRecordIsLeftOut) {
  record(action(1, 0, 0));
  save(10);
  record(action(2, 1, 5));
  core::FindCheckpoint find{JobId{1}, {}};
  const auto chosen = [&] {
    return std::get<core::CheckpointChosen>(find_checkpoint(kId, find, spec_));
  };
  EXPECT_EQ(chosen().newest_generation, Generation{2});
  EXPECT_EQ(chosen().checkpoint, "") << "generation 2 began before step 10";
  find.withdrawn = {{Generation{2}, to_string(kId)}};
  EXPECT_EQ(chosen().newest_generation, Generation{1});
  EXPECT_EQ(chosen().checkpoint, "step-10.g1");
  EXPECT_EQ(chosen().withdrawn, find.withdrawn);
  find.withdrawn = {{Generation{2}, "6.0"}};
  EXPECT_EQ(chosen().newest_generation, Generation{2}) << "of another order";
}

TEST_F(Lineage, TakenRecordTellsWhoseOrderItWas) {
  record(action(1, 0, 0));
  const auto taken = std::get<core::GenerationTaken>(record(action(1, 0, 7)));
  EXPECT_EQ(taken.order, to_string(kId));
}

// The torn manifest is one reader's finding: the worker that loads it is the other.
TEST_F(Lineage, NewestCheckpointIsChosenAlsoWhereItsManifestIsTorn) {
  record(action(1, 0, 0));
  commit_checkpoint("step-20.g1", "{}");
  commit_checkpoint("step-30.g1", "{\"torn\":");
  commit_checkpoint("step-40.g1", "{}");
  core::FindCheckpoint find{JobId{1}, {"step-40.g1"}};
  const auto event = find_checkpoint(kId, find, spec_);
  const auto* chosen = std::get_if<core::CheckpointChosen>(&event);
  ASSERT_NE(chosen, nullptr);
  EXPECT_EQ(chosen->checkpoint, "step-30.g1");
  EXPECT_EQ(chosen->step, 30U);
  EXPECT_EQ(chosen->newest_generation, Generation{1});
}

// The older one would lose the steps between.
TEST_F(Lineage, ACheckpointThatCannotBeReadIsNotPassedOver) {
  record(action(1, 0, 0));
  commit_checkpoint("step-20.g1", "{}");
  ASSERT_TRUE(make_directories(spec_.checkpoint.dir + "/step-30.g1/manifest.json").ok());
  const auto event = find_checkpoint(kId, {JobId{1}, {}}, spec_);
  const auto* failed = std::get_if<core::ActionFailed>(&event);
  ASSERT_NE(failed, nullptr);
  EXPECT_FALSE(failed->permanent) << "it may be read later";
  EXPECT_NE(failed->reason.find("step-30.g1/manifest.json"), std::string::npos);
}

// One ENOENT for the newest manifest made an older checkpoint the newest.
TEST_F(Lineage, ListedManifestThatIsNotFoundIsWaitedFor) {
  record(action(1, 0, 0));
  save(10);
  save(20);
  const std::string manifest = spec_.checkpoint.dir + "/step-20.g1/manifest.json";
  ASSERT_EQ(::rename(manifest.c_str(), (dir_ / "kept").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", manifest.c_str()), 0);
  const auto event = find_checkpoint(kId, {JobId{1}, {}}, spec_);
  const auto* failed = std::get_if<core::ActionFailed>(&event);
  ASSERT_NE(failed, nullptr);
  EXPECT_FALSE(failed->permanent);
  EXPECT_NE(failed->reason.find("its directory lists it"), std::string::npos) << failed->reason;
  ASSERT_EQ(::rename((dir_ / "kept").c_str(), manifest.c_str()), 0);
  EXPECT_EQ(
      std::get<core::CheckpointChosen>(find_checkpoint(kId, {JobId{1}, {}}, spec_)).checkpoint,
      "step-20.g1");
}

TEST_F(Lineage, FalseClaimLeavesTheNewestCheckpointInUse) {
  record(action(1, 0, 0));
  save(10);
  save(20);
  const auto event = find_checkpoint(
      kId, {JobId{1}, {}, {"step-20.g1", "n1", "shard-00000.safetensors is missing", {}}}, spec_);
  const auto& chosen = std::get<core::CheckpointChosen>(event);
  EXPECT_EQ(chosen.checkpoint, "step-20.g1");
  EXPECT_EQ(chosen.confirmed, "");
}

TEST_F(Lineage, TrueClaimIsConfirmedAndTheNextOlderIsChosen) {
  record(action(1, 0, 0));
  save(10);
  save(20);
  const std::string damaged = spec_.checkpoint.dir + "/step-20.g1";
  ASSERT_TRUE(damage_checkpoint(damaged).ok());
  const auto event = find_checkpoint(
      kId, {JobId{1}, {}, {"step-20.g1", "n1", "shard-00000.safetensors: crc32c", {}}}, spec_);
  const auto& chosen = std::get<core::CheckpointChosen>(event);
  EXPECT_EQ(chosen.checkpoint, "step-10.g1");
  EXPECT_NE(chosen.confirmed.find("step-20.g1/shard-00000.safetensors"), std::string::npos)
      << chosen.confirmed;
}

TEST_F(Lineage, ClaimThatCannotBeReadIsTriedAgain) {
  record(action(1, 0, 0));
  save(10);
  save(20);
  const std::string shard = spec_.checkpoint.dir + "/step-20.g1/shard-00000.safetensors";
  ASSERT_EQ(::unlink(shard.c_str()), 0);
  ASSERT_EQ(::symlink(shard.c_str(), shard.c_str()), 0);
  const auto event = find_checkpoint(
      kId, {JobId{1}, {}, {"step-20.g1", "n1", "shard-00000.safetensors: crc32c", {}}}, spec_);
  const auto* failed = std::get_if<core::ActionFailed>(&event);
  ASSERT_NE(failed, nullptr);
  EXPECT_FALSE(failed->permanent);
  EXPECT_NE(failed->reason.find(shard), std::string::npos) << failed->reason;
}

// A checkpoint that the job resumes from by its path. A whole directory that is gone may be a mount
// that is away, unless a record beside it says that it is not.
TEST_F(Lineage, ClaimAboutAPathIsConfirmedOnlyWhereItsPlaceIsThere) {
  record(action(1, 0, 0));
  const std::string elsewhere = dir_ / "elsewhere";
  const auto saved = save_synthetic({elsewhere, {7, 2}, 1, 7, 0, {}});
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  const std::string path = elsewhere + "/step-7.g2";
  const auto find = [&] {
    return find_checkpoint(kId, {JobId{1}, {}, {path, "n1", "its files are missing", {}}}, spec_);
  };
  EXPECT_EQ(std::get<core::CheckpointChosen>(find()).confirmed, "");
  ASSERT_EQ(::unlink((path + "/shard-00000.safetensors").c_str()), 0);
  EXPECT_NE(std::get<core::CheckpointChosen>(find()).confirmed, "") << "its directory is there";
  ASSERT_TRUE(remove_tree(path).ok());
  const auto away = find();
  const auto* failed = std::get_if<core::ActionFailed>(&away);
  ASSERT_NE(failed, nullptr) << "nothing shows that its file system is there";
  EXPECT_FALSE(failed->permanent);
  ASSERT_TRUE(make_directories(elsewhere + "/generations").ok());
  ASSERT_TRUE(write_file_atomic(elsewhere + "/generations/2.json", "{}").ok());
  EXPECT_NE(std::get<core::CheckpointChosen>(find()).confirmed, "") << "the record of generation 2";
}

// `cp -a step-10.g1 step-999.g1` made "FINISHED: 999 steps".
TEST_F(Lineage, CopiedCheckpointEndsTheJobWithBothNames) {
  record(action(1, 0, 0));
  save(10);
  std::filesystem::copy(spec_.checkpoint.dir + "/step-10.g1",
                        spec_.checkpoint.dir + "/step-999.g1");
  const auto event = find_checkpoint(kId, {JobId{1}, {}}, spec_);
  const auto* failed = std::get_if<core::ActionFailed>(&event);
  ASSERT_NE(failed, nullptr);
  EXPECT_TRUE(failed->permanent);
  EXPECT_NE(failed->reason.find("belongs to step-10.g1, not to step-999.g1"), std::string::npos)
      << failed->reason;
}

TEST_F(Lineage, ManifestOfANewerReleaseEndsTheJob) {
  record(action(1, 0, 0));
  save(10);
  save(20);
  const std::string path = spec_.checkpoint.dir + "/step-20.g1/manifest.json";
  auto document = nlohmann::json::parse(read_file(path).value());
  document.erase("crc32c");
  document["version"] = kManifestVersion + 1;
  std::string body = document.dump();
  body.pop_back();
  std::ofstream(path) << body << manifest_seal(body);
  const auto event = find_checkpoint(kId, {JobId{1}, {}}, spec_);
  const auto* failed = std::get_if<core::ActionFailed>(&event);
  ASSERT_NE(failed, nullptr);
  EXPECT_TRUE(failed->permanent);
  EXPECT_NE(failed->reason.find("written by a newer release of hpctl"), std::string::npos)
      << failed->reason;
}

TEST_F(Lineage, RecordedDamageIsReported) {
  core::RecordGeneration first = action(1, 0, 0);
  first.damaged = {"step-20.g1"};
  record(first);
  save(10);
  save(20);
  const auto event = find_checkpoint(kId, {JobId{1}, {}}, spec_);
  const auto& chosen = std::get<core::CheckpointChosen>(event);
  EXPECT_EQ(chosen.checkpoint, "step-10.g1");
  EXPECT_EQ(chosen.damaged, std::vector<std::string>{"step-20.g1"});
}

TEST_F(Lineage, DamageOnPurposeIsOneByteOfACheckpoint) {
  commit_checkpoint("step-30.g1", "{}");
  const std::string checkpoint = spec_.checkpoint.dir + "/step-30.g1";
  EXPECT_NE(damage_checkpoint(checkpoint).error().message.find("shard-00000"), std::string::npos);
  const std::string shard = checkpoint + "/shard-00000.safetensors";
  std::ofstream(shard) << "abcde";
  EXPECT_TRUE(damage_checkpoint(checkpoint).ok());
  EXPECT_EQ(read_file(shard).value(), std::string("ab") + static_cast<char>(~'c') + "de");
}

TEST_F(Lineage, AnEmptyDirectoryMeansTheSeed) {
  const auto event = find_checkpoint(kId, {JobId{1}, {}}, spec_);
  ASSERT_TRUE(std::holds_alternative<core::CheckpointChosen>(event));
  EXPECT_EQ(std::get<core::CheckpointChosen>(event).checkpoint, "");
}

// A directory whose checkpoints were emptied by hand started from the seed in silence.
TEST_F(Lineage, CommittedCheckpointThatIsGoneIsNamed) {
  const auto lost = [&](uint64_t committed_step) {
    const auto event = find_checkpoint(kId, {JobId{1}, {}}, spec_, committed_step);
    const auto* chosen = std::get_if<core::CheckpointChosen>(&event);
    return chosen == nullptr ? "the search failed" : chosen->checkpoint + chosen->lost;
  };
  record(action(1, 0, 0));
  EXPECT_EQ(lost(0), "") << "none was ever committed";
  EXPECT_EQ(lost(10), "a checkpoint of step 10") << "by the job's row";
  core::RecordGeneration second = action(2, 1, 25);
  second.memory_of = Generation{1};
  second.committed = "step-20.g1";
  record(second);
  EXPECT_EQ(lost(0), "step-20.g1") << "by a record";
  save(20);
  EXPECT_EQ(lost(20), "step-20.g1") << "it is there";
}

// The newest checkpoint was deleted by hand: the job went on from an older one in silence.
TEST_F(Lineage, NewestCheckpointThatIsGoneIsNamedBesideAnOlderOne) {
  const auto lost = [&](uint64_t committed_step, std::vector<std::string> damaged) {
    const auto event = find_checkpoint(kId, {JobId{1}, std::move(damaged)}, spec_, committed_step);
    const auto* chosen = std::get_if<core::CheckpointChosen>(&event);
    return chosen == nullptr ? "the search failed" : chosen->checkpoint + " " + chosen->lost;
  };
  record(action(1, 0, 0));
  save(30);
  EXPECT_EQ(lost(30, {}), "step-30.g1 ");
  EXPECT_EQ(lost(40, {}), "step-30.g1 a checkpoint of step 40") << "by the job's row";
  EXPECT_EQ(lost(40, {"step-40.g1"}), "step-30.g1 ") << "it was damaged";
  core::RecordGeneration second = action(2, 1, 45);
  second.memory_of = Generation{1};
  second.committed = "step-40.g1";
  record(second);
  EXPECT_EQ(lost(0, {}), "step-30.g1 step-40.g1") << "by a record";
  EXPECT_EQ(lost(40, {"step-40.g1"}), "step-30.g1 ");
}

// What the first generation began with lies in another directory.
TEST_F(Lineage, CheckpointOfAnotherDirectoryIsNotMissedHere) {
  core::RecordGeneration first = action(1, 0, 500);
  first.checkpoint = "/elsewhere/step-500.g3";
  record(first);
  const auto event = find_checkpoint(kId, {JobId{1}, {}}, spec_, 500);
  EXPECT_EQ(std::get<core::CheckpointChosen>(event).lost, "");
}

// One reader's word ended the job for good, although its state was in memory.
TEST_F(Lineage, DamagedRecordIsNamedAndWaitedFor) {
  record(action(1, 0, 0));
  std::ofstream(spec_.checkpoint.dir + "/generations/1.json") << "{";
  const auto event = find_checkpoint(kId, {JobId{1}, {}}, spec_);
  const auto* failed = std::get_if<core::ActionFailed>(&event);
  ASSERT_NE(failed, nullptr);
  EXPECT_FALSE(failed->permanent);
  EXPECT_NE(failed->reason.find("generations/1.json"), std::string::npos);
}

// Until a generation of this life is on record, whichever controller it is that asks.
TEST(RequeueCarryover, IsKnownUntilAGenerationOfThisLifeIsOnRecord) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(write_exclusion(dir.path(), 1, {{"n2"}, 1}).ok());
  ASSERT_TRUE(write_quarantined(dir.path(), 1, {{"n3", "i-3", "hpctl", "ecc", true}}).ok());
  const auto found = [&](uint64_t life, const std::vector<GenerationRecord>& lineage) {
    return read_former_life(dir.path(), JobId{7}, life, lineage);
  };
  GenerationRecord newest;
  newest.job = 7;
  newest.restart_count = 1;
  for (const auto& lineage : {std::vector<GenerationRecord>{}, {newest}}) {
    EXPECT_EQ(found(2, lineage).excluded, std::vector<std::string>{"n2"});
    EXPECT_EQ(found(2, lineage).exclusion_attempt, 1);
    ASSERT_EQ(found(2, lineage).quarantined.size(), 1U);
    EXPECT_EQ(found(2, lineage).quarantined[0].instance_id, "i-3");
  }
  newest.restart_count = 2;
  EXPECT_TRUE(found(2, {newest}).excluded.empty()) << "it has been dealt with";
  newest.job = 6;
  EXPECT_FALSE(found(2, {newest}).excluded.empty()) << "another job's record";
  EXPECT_TRUE(found(1, {}).excluded.empty());
  EXPECT_TRUE(found(0, {}).quarantined.empty());
}

}  // namespace
}  // namespace hpctl
