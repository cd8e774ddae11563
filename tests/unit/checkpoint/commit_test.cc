// SPDX-License-Identifier: Apache-2.0
// Commit, abandon and retention: what makes a checkpoint exist, what may remove it, and that a
// stale generation can do neither harm nor good.
#include "trainer/checkpoint/commit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "common/base/file.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/checkpoint/confirm.h"
#include "trainer/checkpoint/inspect.h"

namespace hpctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

SyntheticSave save_of(const TemporaryDirectory& dir, uint64_t step, uint64_t generation) {
  return {dir.path(), {step, generation}, 2, 1, 0, {}};
}

void record(const TemporaryDirectory& dir, uint64_t generation, uint64_t start_step,
            const std::vector<std::string>& damaged = {}) {
  GenerationRecord r;
  r.generation = generation;
  r.parent = generation - 1;
  r.start_step = start_step;
  r.damaged = damaged;
  ASSERT_TRUE(create_generation(dir.path(), r).ok());
}

void save(const TemporaryDirectory& dir, uint64_t step, uint64_t generation) {
  const auto saved = save_synthetic(save_of(dir, step, generation));
  ASSERT_TRUE(saved.ok()) << saved.error().message;
}

std::vector<std::string> checkpoints_in(const TemporaryDirectory& dir) {
  std::vector<std::string> names;
  for (const auto& ref : list_checkpoints(dir.path()).value()) names.push_back(ref.name());
  return names;
}

class Commit : public testing::Test {
 protected:
  void SetUp() override {
    for (int32_t rank = 0; rank < 2; ++rank) {
      receipts_.push_back(write_synthetic_shard(save_, rank).value());
    }
  }
  std::string refusal() {
    const auto committed = commit_checkpoint(dir_.path(), synthetic_manifest(save_), receipts_);
    EXPECT_FALSE(is_accessible(dir_ / "step-40.g1/manifest.json"));
    return committed.ok() ? "" : committed.error().message;
  }
  TemporaryDirectory dir_;
  SyntheticSave save_ = save_of(dir_, 40, 1);
  std::vector<Receipt> receipts_;
};

TEST_F(Commit, NeedsEveryRank) {
  receipts_.pop_back();
  EXPECT_THAT(refusal(), HasSubstr("1 of 2 ranks wrote their shard"));
  receipts_.push_back(receipts_.front());
  EXPECT_THAT(refusal(), HasSubstr("cannot commit step-40.g1")) << "the same rank twice";
}

TEST_F(Commit, NeedsEveryElementOnce) {
  const auto good = receipts_;
  receipts_[0].entries.pop_back();
  EXPECT_THAT(refusal(), HasSubstr("misses elements from 0 on"));
  receipts_ = good;
  receipts_[1].entries.erase(receipts_[1].entries.begin());
  EXPECT_THAT(refusal(), HasSubstr("embed param misses elements from"));
  receipts_ = good;
  receipts_[1].entries[0].range.begin -= 16;
  EXPECT_THAT(refusal(), HasSubstr("are there twice"));
  receipts_ = good;
  receipts_[1].entries[0].range.end += 16;
  EXPECT_THAT(refusal(), HasSubstr("are impossible"));
  receipts_ = good;
  receipts_[1].entries[0].offset = 1ULL << 40;
  EXPECT_THAT(refusal(), HasSubstr("lies outside its file"));
  receipts_ = good;
  receipts_[1].rank = 9;
  EXPECT_THAT(refusal(), HasSubstr("unknown rank 9"));
}

TEST_F(Commit, SeesThatAShardIsNotOnTheSharedDisk) {
  ASSERT_EQ(unlink((dir_ / "step-40.g1/shard-00001.safetensors").c_str()), 0);
  EXPECT_THAT(refusal(), HasSubstr("is checkpoint.dir on a disk that all nodes share?"));
}

TEST_F(Commit, IsNeverRepeatedNorOverwritten) {
  const Manifest manifest = synthetic_manifest(save_);
  ASSERT_TRUE(commit_checkpoint(dir_.path(), manifest, receipts_).ok());
  const auto again = commit_checkpoint(dir_.path(), manifest, receipts_);
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(write_synthetic_shard(save_, 0).error().code, ErrorCode::kAlreadyExists);
  ASSERT_TRUE(abandon_checkpoint(dir_.path(), {40, 1}).ok());
  EXPECT_THAT(checkpoints_in(dir_), ElementsAre("step-40.g1"));
}

TEST_F(Commit, AbandonRemovesAPartialSaveAndNothingElse) {
  save(dir_, 20, 1);
  ASSERT_TRUE(abandon_checkpoint(dir_.path(), {40, 1}).ok());
  ASSERT_TRUE(abandon_checkpoint(dir_.path(), {60, 1}).ok()) << "missing is fine";
  EXPECT_EQ(list_directory(dir_.path()).value(), (std::vector<std::string>{"step-20.g1"}));
}

TEST(Retention, KeepsTheNewestValidOnes) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  for (const uint64_t step : {10, 20, 30, 40}) save(dir, step, 1);
  const auto report = keep_newest(dir.path(), 2, 1);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_THAT(report->deleted, ElementsAre("step-10.g1", "step-20.g1"));
  EXPECT_THAT(checkpoints_in(dir), ElementsAre("step-30.g1", "step-40.g1"));
  ASSERT_TRUE(keep_newest(dir.path(), 0, 1).ok());
  EXPECT_THAT(checkpoints_in(dir), ElementsAre("step-40.g1")) << "the newest is never deleted";
}

// `link` takes the place of a manifest; then it is put back.
void expect_nothing_deleted(const char* link) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  for (const uint64_t step : {10, 20, 30}) save(dir, step, 1);
  const std::string manifest = dir / "step-20.g1/manifest.json";
  ASSERT_EQ(::rename(manifest.c_str(), (dir / "aside").c_str()), 0);
  ASSERT_EQ(::symlink(link, manifest.c_str()), 0);
  EXPECT_FALSE(latest_valid_checkpoint(dir.path(), {}).ok());
  EXPECT_FALSE(keep_newest(dir.path(), 1, 1).ok());
  EXPECT_FALSE(abandon_checkpoint(dir.path(), {20, 1}).ok());
  ASSERT_EQ(::rename((dir / "aside").c_str(), manifest.c_str()), 0);
  EXPECT_EQ(list_checkpoints(dir.path()).value().size(), 3U);
  for (const char* name : {"step-10.g1", "step-20.g1", "step-30.g1"}) {
    EXPECT_TRUE(digest_checkpoint(dir / name).ok()) << name;
  }
}

// A manifest that cannot be looked for may be whole.
TEST(Retention, WhatCannotBeReadDeletesNothing) { expect_nothing_deleted("manifest.json"); }

TEST(Retention, ListedManifestThatIsNotFoundDeletesNothing) { expect_nothing_deleted("nowhere"); }

TEST(Retention, MultiplesOfKeepEveryStay) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  for (const uint64_t step : {10, 20, 30, 40, 50, 60, 70}) save(dir, step, 1);
  ASSERT_TRUE(keep_newest(dir.path(), 2, 1, 30).ok());
  EXPECT_THAT(checkpoints_in(dir), ElementsAre("step-30.g1", "step-60.g1", "step-70.g1"));
  record(dir, 2, 30);
  save(dir, 40, 2);
  ASSERT_TRUE(keep_newest(dir.path(), 1, 2, 30).ok());
  EXPECT_THAT(checkpoints_in(dir), ElementsAre("step-30.g1", "step-40.g2"))
      << "a multiple on a history that was given up goes";
}

// A worker was killed at step 30, before its save was durable, and the next save was at step 31.
TEST(Retention, FirstAfterAMissedMultipleOfKeepEveryStays) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  for (const uint64_t step : {10, 20}) save(dir, step, 1);
  record(dir, 2, 30);
  for (const uint64_t step : {31, 40, 50, 60, 70}) save(dir, step, 2);
  ASSERT_TRUE(keep_newest(dir.path(), 1, 2, 30).ok());
  EXPECT_THAT(checkpoints_in(dir), ElementsAre("step-31.g2", "step-60.g2", "step-70.g2"));
  save(dir, 80, 2);
  ASSERT_TRUE(keep_newest(dir.path(), 1, 2, 30).ok());
  EXPECT_THAT(checkpoints_in(dir), ElementsAre("step-31.g2", "step-60.g2", "step-80.g2"));
}

TEST(Retention, StaleHistoryDoesNotCountAndGoes) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  save(dir, 10, 1);
  save(dir, 20, 1);
  record(dir, 2, 10);
  save(dir, 30, 1);  // a late commit of the generation that was given up
  const auto late = list_checkpoint_states(dir.path()).value();
  EXPECT_EQ(late.back().state, CheckpointState::kStale);
  EXPECT_EQ(*latest_valid_checkpoint(dir.path(), {}).value(), (CheckpointRef{10, 1}));
  EXPECT_EQ(resolve_checkpoint(dir.path()).value(), dir / "step-10.g1");
  save(dir, 15, 2);
  ASSERT_TRUE(keep_newest(dir.path(), 2, 2).ok());
  EXPECT_THAT(checkpoints_in(dir), ElementsAre("step-10.g1", "step-15.g2"));
}

TEST(Retention, OnlyTheNewestGenerationDeletes) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  save(dir, 10, 1);
  save(dir, 20, 1);
  record(dir, 2, 10);
  const auto report = keep_newest(dir.path(), 1, 1);
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->refused, HasSubstr("generation 2 is newer than 1"));
  EXPECT_THAT(report->deleted, IsEmpty());
  EXPECT_EQ(checkpoints_in(dir).size(), 2U);
}

// The state that training went back to may be the only other one: nothing goes before the next is
// durable, and nothing of the undone history is resumed from meanwhile.
TEST(Retention, UndoneCheckpointsGoWithTheNextCommit) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  for (const uint64_t step : {10, 20, 30}) save(dir, step, 1);
  ASSERT_TRUE(undo_checkpoints(dir.path(), 1, 10).ok());
  EXPECT_THAT(checkpoints_in(dir), ElementsAre("step-10.g1"));
  EXPECT_EQ(list_directory(dir.path()).value(),
            (std::vector<std::string>{"generations", "step-10.g1", "undone-step-20.g1",
                                      "undone-step-30.g1"}));
  const auto whole = verify_checkpoint(dir / "undone-step-30.g1");
  EXPECT_TRUE(whole.ok() && whole->problems.empty());
  save(dir, 20, 1);
  ASSERT_TRUE(undo_checkpoints(dir.path(), 1, 10).ok()) << "the same name again";
  EXPECT_EQ(list_directory(dir.path()).value(),
            (std::vector<std::string>{"generations", "step-10.g1", "undone-2-step-20.g1",
                                      "undone-step-20.g1", "undone-step-30.g1"}));
  save(dir, 20, 1);
  ASSERT_TRUE(keep_newest(dir.path(), 3, 1).ok());
  EXPECT_EQ(list_directory(dir.path()).value(),
            (std::vector<std::string>{"generations", "step-10.g1", "step-20.g1"}));
}

TEST(Retention, PartialSavesOfOlderGenerationsGoOwnOnesStay) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  save(dir, 10, 1);
  record(dir, 2, 10);
  ASSERT_TRUE(write_synthetic_shard(save_of(dir, 20, 1), 0).ok());
  ASSERT_TRUE(write_synthetic_shard(save_of(dir, 20, 2), 0).ok());
  ASSERT_TRUE(keep_newest(dir.path(), 3, 2).ok());
  EXPECT_EQ(list_directory(dir.path()).value(),
            (std::vector<std::string>{"generations", "step-10.g1", "step-20.g2"}));
}

TEST(Retention, DamagedOnesNeitherCountNorGo) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  save(dir, 10, 1);
  save(dir, 20, 1);
  record(dir, 2, 10, {"step-20.g1"});
  save(dir, 30, 2);
  ASSERT_TRUE(keep_newest(dir.path(), 2, 2).ok());
  EXPECT_THAT(checkpoints_in(dir), ElementsAre("step-10.g1", "step-20.g1", "step-30.g2"));
  EXPECT_EQ(list_checkpoint_states(dir.path())->at(1).state, CheckpointState::kDamaged);
}

GenerationRecord record_of(uint64_t generation, uint64_t parent, const std::string& job_uuid) {
  GenerationRecord r;
  r.generation = generation;
  r.parent = parent;
  r.job = 1;  // of each home
  r.job_name = "llama";
  r.job_uuid = job_uuid;
  return r;
}

// checkpoint.resume: none deleted 7 of 12 checkpoints of the job before: nothing of them was on the
// chain of the new one.
TEST(Retention, AnotherJobsCheckpointsStay) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(create_generation(dir.path(), record_of(1, 0, "former")).ok());
  for (const uint64_t step : {10, 20, 30, 40}) save(dir, step, 1);
  ASSERT_TRUE(undo_checkpoints(dir.path(), 1, 30).ok());
  ASSERT_TRUE(write_synthetic_shard(save_of(dir, 50, 1), 0).ok());
  save(dir, 0, 0);  // imported, by no job
  ASSERT_TRUE(create_generation(dir.path(), record_of(2, 0, "fresh")).ok());
  for (const uint64_t step : {2, 4, 6}) save(dir, step, 2);
  const auto report = keep_newest(dir.path(), 2, 2);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_THAT(report->deleted, ElementsAre("step-2.g2"));
  EXPECT_EQ(list_directory(dir.path()).value(),
            (std::vector<std::string>{"generations", "step-0.g0", "step-10.g1", "step-20.g1",
                                      "step-30.g1", "step-4.g2", "step-50.g1", "step-6.g2",
                                      "undone-step-40.g1"}));
}

// With checkpoint.resume: latest the chain of an ended job becomes this one's, and `keep` counts
// over all of it.
TEST(Retention, ContinuedChainIsOwn) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(create_generation(dir.path(), record_of(1, 0, "former")).ok());
  for (const uint64_t step : {10, 20, 30}) save(dir, step, 1);
  GenerationRecord next = record_of(2, 1, "next");
  next.start_step = 30;
  ASSERT_TRUE(create_generation(dir.path(), next).ok());
  save(dir, 40, 2);
  ASSERT_TRUE(keep_newest(dir.path(), 2, 2).ok());
  EXPECT_THAT(checkpoints_in(dir), ElementsAre("step-30.g1", "step-40.g2"));
}

// A job said FINISHED, and export by its name gave another job's weights.
TEST(Lineage, JobsOwnChainIsResolved) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(create_generation(dir.path(), record_of(1, 0, "former")).ok());
  save(dir, 40, 1);
  ASSERT_TRUE(create_generation(dir.path(), record_of(2, 0, "fresh")).ok());
  save(dir, 5, 2);
  GenerationRecord next = record_of(3, 2, "next");
  next.start_step = 5;
  ASSERT_TRUE(create_generation(dir.path(), next).ok());
  const auto resolved = [&](const std::string& uuid) {
    return resolve_checkpoint_of(dir.path(), {1, "llama", uuid});
  };
  EXPECT_EQ(resolved("former").value(), dir / "step-40.g1");
  EXPECT_EQ(resolved("fresh").value(), dir / "step-5.g2");
  EXPECT_EQ(resolved("next").value(), dir / "step-5.g2") << "it has saved nothing yet";
  save(dir, 9, 3);
  EXPECT_EQ(resolved("next").value(), dir / "step-9.g3");
  EXPECT_EQ(resolved("fresh").value(), dir / "step-5.g2") << "though another job goes on from it";
  EXPECT_EQ(resolved("other").error().code, ErrorCode::kNotFound);
  EXPECT_THAT(resolved("other").error().message, HasSubstr("has recorded no generation"));
}

// The worker that saved step 40 after its generation had ended deleted step 30, from which the
// controller had the next generation start; lineage then ignored step 40, and both were lost.
TEST(Retention, LateCommitDoesNotCostWhatWasChosen) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  save(dir, 30, 1);
  record(dir, 2, 30);
  save(dir, 40, 1);
  const auto late = keep_newest(dir.path(), 1, 1);
  ASSERT_TRUE(late.ok());
  EXPECT_THAT(late->deleted, IsEmpty());
  ASSERT_TRUE(keep_newest(dir.path(), 1, 2).ok());
  EXPECT_EQ(latest_valid_checkpoint(dir.path(), {}).value(), (CheckpointRef{30, 1}));
  EXPECT_THAT(checkpoints_in(dir), ElementsAre("step-30.g1")) << "the late one goes";
}

// ---- what must be proven first ------------------------------------------------------------------

// Three checkpoints, of which the newest is damaged in a way that only some depths see.
class Proof : public ::testing::Test {
 protected:
  void SetUp() override {
    record(dir_, 1, 0);
    for (const uint64_t step : {10, 20, 30}) save(dir_, step, 1);
  }
  Result<RetentionReport> prune(VerifyDepth depth) {
    return delete_older_checkpoints(dir_.path(), {.generation = 1, .keep = 1, .depth = depth});
  }
  std::string shard() const { return dir_ / "step-30.g1/shard-00001.safetensors"; }
  void expect_kept(VerifyDepth depth, const std::string& problem) {
    const auto report = prune(depth);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_THAT(report->problem, HasSubstr(problem));
    EXPECT_THAT(report->deleted, IsEmpty());
    EXPECT_EQ(report->verified, "");
    EXPECT_EQ(checkpoints_in(dir_).size(), 3U);
  }
  void expect_pruned(VerifyDepth depth) {
    const auto report = prune(depth);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report->problem, "");
    EXPECT_EQ(report->verified, "step-30.g1");
    EXPECT_THAT(report->deleted, ElementsAre("step-10.g1", "step-20.g1"));
  }
  void invert_byte(uint64_t offset) {
    std::fstream file(shard(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const auto byte = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(~byte));
    ASSERT_TRUE(file.good());
  }
  std::vector<const ShardEntry*> entries(const Manifest& manifest) const {
    std::vector<const ShardEntry*> of_shard;
    for (const ShardEntry& entry : manifest.shards) {
      if (entry.file == 1) of_shard.push_back(&entry);
    }
    return of_shard;
  }

  TemporaryDirectory dir_;
};

TEST_F(Proof, ShortShardDeletesNothing) {
  const auto size = static_cast<off_t>(read_file(shard()).value().size());
  ASSERT_EQ(::truncate(shard().c_str(), size - 1), 0);
  for (const VerifyDepth depth : {VerifyDepth::kSizes, VerifyDepth::kSample, VerifyDepth::kFull}) {
    expect_kept(
        depth, "shard-00001.safetensors is damaged: it has " + std::to_string(size - 1) + " bytes");
  }
}

TEST_F(Proof, MissingShardDeletesNothing) {
  ASSERT_EQ(::unlink(shard().c_str()), 0);
  expect_kept(VerifyDepth::kSizes, "shard-00001.safetensors is damaged: it is missing");
}

TEST_F(Proof, TornManifestDeletesNothing) {
  const std::string manifest = dir_ / "step-30.g1/manifest.json";
  ASSERT_EQ(::truncate(manifest.c_str(), 100), 0);
  expect_kept(VerifyDepth::kSizes, "step-30.g1/manifest.json");
}

TEST_F(Proof, SampleReadsItsRangesOfEveryShard) {
  const Manifest manifest = read_manifest(dir_ / "step-30.g1").value();
  const auto stored = entries(manifest);
  const auto sampled = sampled_ranges({30, 1}, 1, stored.size());
  ASSERT_EQ(sampled.size(), 2U);
  for (const size_t i : sampled) {
    invert_byte(stored[i]->offset);
    expect_kept(VerifyDepth::kSample, "shard-00001.safetensors");
    invert_byte(stored[i]->offset);
  }
  for (size_t i = 0; i < stored.size(); ++i) {
    if (std::find(sampled.begin(), sampled.end(), i) == sampled.end()) {
      invert_byte(stored[i]->offset);
    }
  }
  expect_kept(VerifyDepth::kFull, "shard-00001.safetensors is damaged: crc32c does not match");
  expect_pruned(VerifyDepth::kSample);
}

TEST_F(Proof, SizesLeaveTheBytesAlone) {
  invert_byte(entries(read_manifest(dir_ / "step-30.g1").value()).front()->offset);
  expect_pruned(VerifyDepth::kSizes);
}

TEST_F(Proof, FullReadsTheHeaderToo) {
  invert_byte(9);
  expect_kept(VerifyDepth::kFull, "crc32c does not match");
}

// Storage that does not answer is no damage: an error, and another attempt later.
TEST_F(Proof, UnreadableShardIsAnErrorAndDeletesNothing) {
  ASSERT_EQ(::unlink(shard().c_str()), 0);
  ASSERT_EQ(::symlink("shard-00001.safetensors", shard().c_str()), 0);
  const auto report = prune(VerifyDepth::kSizes);
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message, HasSubstr("shard-00001.safetensors"));
  EXPECT_EQ(checkpoints_in(dir_).size(), 3U);
}

// A recovery interrupts it: before the first byte, or between two deletions.
TEST_F(Proof, InterruptionStopsTheDeletion) {
  int asked = 0;
  RetentionOrder order{.generation = 1, .keep = 1, .depth = VerifyDepth::kSizes};
  order.goes_on = [&] { return ++asked <= 3; };  // both shards, the first deletion
  const auto report = delete_older_checkpoints(dir_.path(), order);
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->refused, HasSubstr("interrupted"));
  EXPECT_THAT(report->deleted, ElementsAre("step-10.g1"));
  order.goes_on = [] { return false; };
  EXPECT_THAT(delete_older_checkpoints(dir_.path(), order)->deleted, IsEmpty());
  EXPECT_THAT(checkpoints_in(dir_), ElementsAre("step-20.g1", "step-30.g1"));
}

TEST(Sample, DiffersBetweenCheckpointsAndShards) {
  const auto first = sampled_ranges({30, 1}, 0, 1000);
  EXPECT_EQ(first, sampled_ranges({30, 1}, 0, 1000));
  EXPECT_NE(first, sampled_ranges({40, 1}, 0, 1000));
  EXPECT_NE(first, sampled_ranges({30, 2}, 0, 1000));
  EXPECT_NE(first, sampled_ranges({30, 1}, 1, 1000));
  EXPECT_THAT(sampled_ranges({30, 1}, 0, 2), ElementsAre(0U, 1U));
  EXPECT_THAT(sampled_ranges({30, 1}, 0, 1), ElementsAre(0U));
  EXPECT_THAT(sampled_ranges({30, 1}, 0, 0), IsEmpty());
}

// A server that answered "no such file" for a moment showed no records: every checkpoint then
// seemed valid, also those of other jobs.
TEST(Retention, UnseenRecordDeletesNothing) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  for (const uint64_t step : {10, 20}) save(dir, step, 1);
  ASSERT_EQ(::rename((dir / "generations").c_str(), (dir / "aside").c_str()), 0);
  const auto report = keep_newest(dir.path(), 1, 1);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_THAT(report->refused, HasSubstr("the record of generation 1 cannot be seen"));
  EXPECT_THAT(report->deleted, IsEmpty());
  EXPECT_EQ(checkpoints_in(dir).size(), 2U);
}

// A full disk: fewer than `keep`, one at a time, and never the newest one.
TEST(Retention, RoomIsMadeDownToOneVerifiedCheckpoint) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  for (const uint64_t step : {10, 20, 30}) save(dir, step, 1);
  const auto make_room = [&] {
    return delete_older_checkpoints(dir.path(), {.generation = 1, .keep = 5, .for_room = true})
        .value()
        .deleted;
  };
  EXPECT_THAT(make_room(), ElementsAre("step-10.g1"));
  EXPECT_THAT(make_room(), ElementsAre("step-20.g1"));
  EXPECT_THAT(make_room(), IsEmpty());
  EXPECT_THAT(checkpoints_in(dir), ElementsAre("step-30.g1"));
}

// A save without a manifest may still be committed by a process that nobody can reach.
TEST(Retention, UnfinishedSaveGoesOnlyWhenItsTimeIsOver) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  save(dir, 10, 1);
  ASSERT_TRUE(write_synthetic_shard(save_of(dir, 20, 1), 0).ok());
  record(dir, 2, 20);  // from memory
  const auto deleted = [&](bool unfinished) {
    return delete_older_checkpoints(dir.path(), {.generation = 2, .unfinished = unfinished})
        .value()
        .deleted;
  };
  EXPECT_THAT(deleted(true), IsEmpty()) << "committed late, it would be the newest one";
  save(dir, 30, 2);
  EXPECT_THAT(deleted(false), ElementsAre("step-10.g1"));
  EXPECT_THAT(deleted(true), ElementsAre("step-20.g1"));
}

// A generation that was given up goes on saving on a node that cannot be reached, while the next
// one saves and cleans up. Whatever the interleaving, the surviving history is whole.
TEST(Retention, StaleSavesRaceHarmlessly) {
  const TemporaryDirectory dir;
  record(dir, 1, 0);
  save(dir, 10, 1);
  record(dir, 2, 10);
  std::atomic<bool> done{false};
  std::thread stale([&] {
    // Errors are expected: its directories are swept away under it.
    for (uint64_t step = 11; !done; ++step) {
      (void)save_synthetic(save_of(dir, step, 1));
      (void)keep_newest(dir.path(), 1, 1);
    }
  });
  for (uint64_t step = 11; step <= 60; ++step) {
    save(dir, step, 2);
    (void)keep_newest(dir.path(), 2, 2);  // may find a directory refilled while removing it
    EXPECT_EQ(latest_valid_checkpoint(dir.path(), {}).value(), (CheckpointRef{step, 2}));
    const auto report = verify_checkpoint(dir / CheckpointRef{step, 2}.name());
    EXPECT_TRUE(report.ok() && report->problems.empty()) << step;
  }
  done = true;
  stale.join();
  const auto last = keep_newest(dir.path(), 2, 2);
  ASSERT_TRUE(last.ok()) << last.error().message;
  EXPECT_EQ(list_directory(dir.path()).value(),
            (std::vector<std::string>{"generations", "step-59.g2", "step-60.g2"}));
}

TEST(Listing, NamesWhatToDoWhenThereIsNothing) {
  const TemporaryDirectory dir;
  EXPECT_THAT(resolve_checkpoint(dir.path()).error().message, HasSubstr("no valid checkpoint"));
  EXPECT_EQ(resolve_checkpoint(dir / "gone").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace hpctl
