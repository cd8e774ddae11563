// SPDX-License-Identifier: Apache-2.0
// MirrorCheckpoint and the search of a mirror as the controller carries them out, on real files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <variant>

#include "common/base/file.h"
#include "controller/engine/checkpoint_dir_actions.h"
#include "controller/engine/mirror.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/checkpoint/confirm.h"
#include "trainer/checkpoint/mirror.h"

namespace hpctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class MirrorAction : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(make_directories(first()).ok());
    ASSERT_TRUE(make_directories(mirror()).ok());
    spec_.checkpoint.dir = first();
    spec_.checkpoint.mirror.dir = mirror();
    spec_.checkpoint.keep = 2;
    record(1, 0, 0);
    save(10);
    save(20);
  }
  std::string first() const { return dir_ / "first"; }
  std::string mirror() const { return dir_ / "mirror"; }
  void record(uint64_t generation, uint64_t parent, uint64_t start) {
    GenerationRecord made;
    made.generation = generation;
    made.parent = parent;
    made.start_step = start;
    ASSERT_TRUE(create_generation(first(), made).ok());
    newest_ = {generation};
  }
  void save(uint64_t step, uint64_t salt = 0) {
    ASSERT_TRUE(save_synthetic({first(), {step, newest_.value}, 2, salt, 0, {}}).ok());
  }
  std::optional<core::EventBody> order() {
    const core::MirrorCheckpoint action{JobId{1}, newest_, damaged_, undone_,
                                        false,    asks_,   verified_};
    return mirror_checkpoint(ActionId{Seq{5}, 0}, action, spec_,
                             [this] { return pieces_ != 1 && (pieces_ == 0 || --pieces_ > 0); });
  }
  core::CheckpointMirrored mirrored() {
    const auto answer = order().value();
    const auto* failed = std::get_if<core::ActionFailed>(&answer);
    EXPECT_EQ(failed, nullptr) << failed->reason;
    return failed == nullptr ? std::get<core::CheckpointMirrored>(answer)
                             : core::CheckpointMirrored{};
  }
  core::CheckpointChosen found(core::FirstPlace first = {}) {
    core::FindCheckpoint action{JobId{1}, damaged_, claim_};
    action.in_mirror = true;
    action.first = first;
    action.undone = undone_;
    return std::get<core::CheckpointChosen>(find_in_mirror(ActionId{Seq{6}, 0}, action, spec_));
  }
  std::string shard(const std::string& place, int step) const {
    return place + "/step-" + std::to_string(step) + ".g1/shard-00001.safetensors";
  }
  static void flip(const std::string& path) {
    std::string bytes = read_file(path).value();
    bytes[bytes.size() / 2] = static_cast<char>(~bytes[bytes.size() / 2]);
    ASSERT_TRUE(write_file_atomic(path, bytes).ok());
  }

  TemporaryDirectory dir_;
  JobSpec spec_;
  Generation newest_;
  std::vector<std::string> damaged_;
  core::DamageClaim claim_;
  core::UndoneSteps undone_;
  bool asks_ = false;     // nodes can be asked to verify
  std::string verified_;  // a path, by a node
  int pieces_ = 0;        // the order is withdrawn at that piece; 0 = never
};

TEST_F(MirrorAction, CopiesRecordsAndTheNewestCheckpoint) {
  const auto done = mirrored();
  EXPECT_EQ(done.checkpoint, "step-20.g1");
  EXPECT_EQ(done.step, 20U);
  EXPECT_GT(done.copied_bytes, 0U);
  EXPECT_EQ(done.problem, "");
  EXPECT_THAT(list_checkpoints(mirror()).value(), ElementsAre(CheckpointRef{20, 1}));
  EXPECT_EQ(read_lineage(mirror()).value().size(), 1U);
  const auto whole =
      confirm_checkpoint(mirror() + "/step-20.g1", VerifyDepth::kFull, [] { return true; });
  EXPECT_TRUE(whole.ok());
  EXPECT_EQ(mirrored().copied_bytes, 0U) << "repeated, it has nothing to do";
}

TEST_F(MirrorAction, KeepsAsManyAsTheJobKeeps) {
  for (const uint64_t step : {30, 40, 50}) {
    mirrored();
    save(step);
  }
  const auto done = mirrored();
  EXPECT_THAT(done.deleted, ElementsAre("step-30.g1"));
  EXPECT_THAT(list_checkpoints(mirror()).value(),
              ElementsAre(CheckpointRef{40, 1}, CheckpointRef{50, 1}));
}

// One reader's word deletes nothing: what is to go waits for a node that reads what is newer.
TEST_F(MirrorAction, OlderCopiesStayUntilANodeHasReadTheNewest) {
  spec_.checkpoint.keep = 1;
  mirrored();
  save(30);
  asks_ = true;
  const auto asked = mirrored();
  EXPECT_EQ(asked.checkpoint, "step-30.g1");
  EXPECT_EQ(asked.to_verify, mirror() + "/step-30.g1");
  EXPECT_THAT(asked.deleted, IsEmpty());
  EXPECT_THAT(list_checkpoints(mirror()).value(),
              ElementsAre(CheckpointRef{20, 1}, CheckpointRef{30, 1}));
  verified_ = asked.to_verify;
  const auto done = mirrored();
  EXPECT_THAT(done.deleted, ElementsAre("step-20.g1"));
  EXPECT_EQ(done.verified, verified_);
  EXPECT_EQ(done.to_verify, "");
}

TEST_F(MirrorAction, WhatANodeVerifiedBeforeDoesNotCoverANewerCopy) {
  spec_.checkpoint.keep = 1;
  mirrored();
  save(30);
  asks_ = true;
  verified_ = mirrored().to_verify;
  save(40);
  const auto done = mirrored();
  EXPECT_THAT(done.deleted, ElementsAre("step-20.g1"));
  EXPECT_EQ(done.to_verify, mirror() + "/step-40.g1");
  EXPECT_THAT(list_checkpoints(mirror()).value(),
              ElementsAre(CheckpointRef{30, 1}, CheckpointRef{40, 1}));
}

TEST_F(MirrorAction, UndoneCopyIsSetAsideAndGoesWithTheNextVerification) {
  mirrored();
  ASSERT_TRUE(undo_checkpoints(first(), 1, 10).ok());
  undone_ = {Generation{1}, 10};
  asks_ = true;
  const auto asked = mirrored();
  EXPECT_EQ(asked.to_verify, mirror() + "/step-10.g1");
  EXPECT_TRUE(path_exists(mirror() + "/undone-step-20.g1/manifest.json").value());
  verified_ = asked.to_verify;
  EXPECT_THAT(mirrored().deleted, ElementsAre("undone-step-20.g1"));
}

// A mirror that is full of copies that were never finished has nothing that could remain.
TEST_F(MirrorAction, LeftoversGoAfterANewerCheckpointOfTheFirstPlaceWasVerified) {
  ASSERT_TRUE(make_directories(mirror() + "/step-10.g1").ok());
  ASSERT_TRUE(make_directories(mirror() + "/step-30.g1").ok());
  ASSERT_TRUE(make_directories(mirror() + "/undone-step-20.g1").ok());
  EXPECT_THAT(list_leftovers(mirror(), {20, 1}).value(),
              ElementsAre("step-10.g1", "undone-step-20.g1"));
  asks_ = true;
  verified_ = first() + "/step-20.g1";
  EXPECT_EQ(mirrored().checkpoint, "step-20.g1");
  EXPECT_FALSE(path_exists(mirror() + "/step-10.g1").value());
  EXPECT_FALSE(path_exists(mirror() + "/undone-step-20.g1").value());
  EXPECT_TRUE(path_exists(mirror() + "/step-30.g1").value());
}

// While the first place is away, its search cannot settle a claim about a copy.
TEST_F(MirrorAction, SearchReadsAClaimedCopyAgain) {
  mirrored();
  save(30);
  mirrored();
  claim_ = {mirror() + "/step-30.g1", "n1", "shard-00001.safetensors: crc32c", {}};
  core::FirstPlace away;
  away.away = true;
  EXPECT_EQ(found(away).confirmed, "");
  EXPECT_EQ(found(away).checkpoint, mirror() + "/step-30.g1");
  flip(shard(mirror(), 30));
  EXPECT_THAT(found(away).confirmed, HasSubstr("step-30.g1/shard-00001.safetensors"));
  EXPECT_EQ(found(away).checkpoint, mirror() + "/step-20.g1");
}

TEST_F(MirrorAction, DamagedSourceIsToldAndNotCopied) {
  mirrored();
  save(30);
  flip(shard(first(), 30));
  const auto done = mirrored();
  EXPECT_THAT(done.problem, HasSubstr("step-30.g1/shard-00001.safetensors"));
  EXPECT_EQ(done.step, 20U);
  EXPECT_THAT(list_checkpoints(mirror()).value(), ElementsAre(CheckpointRef{20, 1}));
}

// At every piece: the copy is continued by the next order, or removed when a newer one is copied.
TEST_F(MirrorAction, InterruptedCopyIsNoCheckpointAndIsFinishedLater) {
  int interrupted = 0;
  for (int piece = 1;; ++piece) {
    pieces_ = piece;
    if (order().has_value()) break;
    ++interrupted;
    if (!list_checkpoints(mirror()).value().empty()) break;  // while it was pruned
  }
  EXPECT_GE(interrupted, 4) << "at both files, and while they are read again";
  pieces_ = 0;
  EXPECT_EQ(mirrored().checkpoint, "step-20.g1");
}

TEST_F(MirrorAction, UnfinishedCopyGoesAfterANewerOneWasVerified) {
  ASSERT_TRUE(make_directories(mirror() + "/step-10.g1").ok());
  ASSERT_TRUE(write_file_atomic(shard(mirror(), 10), "half").ok());
  asks_ = true;
  verified_ = mirrored().to_verify;
  EXPECT_EQ(verified_, mirror() + "/step-20.g1");
  EXPECT_TRUE(path_exists(mirror() + "/step-10.g1").value());
  mirrored();
  EXPECT_FALSE(path_exists(mirror() + "/step-10.g1").value());
}

// A file of an earlier attempt with the right size and other bytes.
TEST_F(MirrorAction, SpoiledFileOfAnEarlierCopyIsReplaced) {
  ASSERT_TRUE(make_directories(mirror() + "/step-20.g1").ok());
  ASSERT_TRUE(write_file_atomic(shard(mirror(), 20), read_file(shard(first(), 20)).value()).ok());
  flip(shard(mirror(), 20));
  EXPECT_EQ(mirrored().checkpoint, "step-20.g1");
  EXPECT_EQ(read_file(shard(mirror(), 20)).value(), read_file(shard(first(), 20)).value());
}

// A manifest that is listed and not found by name, as for an NFS client that answers from a stale
// cache. One ENOENT must not delete a whole checkpoint.
TEST_F(MirrorAction, CopyWithAManifestThatIsOnlyListedStays) {
  mirrored();
  const std::string copy = mirror() + "/step-20.g1";
  const std::string manifest = copy + "/manifest.json";
  ASSERT_EQ(::rename(manifest.c_str(), (dir_ / "aside").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", manifest.c_str()), 0);
  save(30);
  EXPECT_EQ(list_leftovers(mirror(), {30, 1}).error().code, ErrorCode::kStorage);
  EXPECT_EQ(copy_checkpoint(first(), mirror(), "step-20.g1", {}).error().code, ErrorCode::kStorage);
  EXPECT_TRUE(std::holds_alternative<core::ActionFailed>(order().value()));
  ASSERT_TRUE(path_exists(shard(mirror(), 20)).value());
  ASSERT_EQ(::unlink(manifest.c_str()), 0);
  ASSERT_EQ(::rename((dir_ / "aside").c_str(), manifest.c_str()), 0);
  EXPECT_EQ(mirrored().checkpoint, "step-30.g1");
  EXPECT_THAT(list_checkpoints(mirror()).value(),
              ElementsAre(CheckpointRef{20, 1}, CheckpointRef{30, 1}));
}

TEST_F(MirrorAction, SearchDoesNotSkipACopyForDamageInTheFirstPlace) {
  mirrored();
  damaged_ = {"step-20.g1"};
  EXPECT_EQ(found().checkpoint, mirror() + "/step-20.g1");
  damaged_ = {mirror() + "/step-20.g1"};
  EXPECT_EQ(found().checkpoint, "");
}

TEST_F(MirrorAction, SearchFollowsTheLineageOfTheFirstPlace) {
  mirrored();
  record(2, 1, 10);
  EXPECT_EQ(found().checkpoint, "") << "generation 2 began before step 20";
  core::FirstPlace away;
  away.away = true;
  EXPECT_EQ(found(away).checkpoint, mirror() + "/step-20.g1");
  EXPECT_EQ(found(away).newest_generation, Generation{1});
}

TEST_F(MirrorAction, UndoneStepIsNotFoundAndIsReplaced) {
  mirrored();
  ASSERT_TRUE(undo_checkpoints(first(), 1, 10).ok());
  undone_ = {Generation{1}, 10};
  EXPECT_EQ(found().checkpoint, "");
  EXPECT_EQ(mirrored().step, 10U);
  save(20, 99);
  EXPECT_EQ(mirrored().step, 20U);
  EXPECT_TRUE(is_copied(first(), mirror(), "step-20.g1").value());
}

TEST_F(MirrorAction, OtherHistoryInTheMirrorIsRefused) {
  GenerationRecord other;
  other.generation = 1;
  other.job_name = "other";
  ASSERT_TRUE(create_generation(mirror(), other).ok());
  const auto failed = std::get<core::ActionFailed>(order().value());
  EXPECT_THAT(failed.reason, HasSubstr("different records of generation 1"));
  EXPECT_FALSE(failed.permanent);
}

// An older controller, between two of this release, copied the record without what it does not
// know.
TEST_F(MirrorAction, RecordThatAnOlderReleaseCopiedIsTheSame) {
  GenerationRecord second;
  second.generation = 2;
  second.parent = 1;
  second.order = "14.0";
  ASSERT_TRUE(create_generation(first(), second).ok());
  ASSERT_TRUE(copy_lineage(first(), mirror()).ok());
  ASSERT_EQ(::unlink((mirror() + "/generations/2.json").c_str()), 0);
  second.order.clear();
  ASSERT_TRUE(create_generation(mirror(), second).ok());
  EXPECT_TRUE(copy_lineage(first(), mirror()).ok());
}

TEST_F(MirrorAction, EmptiedFirstPlaceGetsItsRecordsBack) {
  mirrored();
  for (const char* name : {"/generations", "/step-10.g1", "/step-20.g1"}) {
    ASSERT_TRUE(remove_tree(first() + name).ok());
  }
  const auto chosen = std::get<core::CheckpointChosen>(
      find_checkpoint(ActionId{Seq{6}, 0}, {JobId{1}, {}, {}, Generation{1}}, spec_));
  EXPECT_EQ(chosen.newest_generation, Generation{1});
  EXPECT_EQ(chosen.checkpoint, "");
  EXPECT_EQ(read_lineage(first()).value().size(), 1U);
}

// What is seen of a mount that is away.
TEST_F(MirrorAction, AnotherDirectoryInTheFirstPlaceGetsNothing) {
  mirrored();
  ASSERT_EQ(::rename(first().c_str(), (dir_ / "hidden").c_str()), 0);
  ASSERT_TRUE(make_directories(first()).ok());
  const auto failed = std::get<core::ActionFailed>(
      find_checkpoint(ActionId{Seq{6}, 0}, {JobId{1}, {}, {}, Generation{1}}, spec_));
  EXPECT_THAT(failed.reason, HasSubstr("is not the directory that was mirrored"));
  EXPECT_FALSE(failed.permanent);
  EXPECT_FALSE(path_exists(first() + "/generations").value());
}

TEST_F(MirrorAction, OneDirectoryByAnotherNameIsRefused) {
  ASSERT_EQ(::symlink(first().c_str(), (dir_ / "link").c_str()), 0);
  for (const std::string& place : {dir_ / "link", dir_ / "link/inside", first() + "/not/yet"}) {
    spec_.checkpoint.mirror.dir = place;
    EXPECT_THAT(std::get<core::ActionFailed>(order().value()).reason,
                HasSubstr("one is inside the other"))
        << place;
  }
  EXPECT_TRUE(check_apart(first(), dir_ / "firsthand/not/yet").ok());
}

}  // namespace
}  // namespace hpctl
