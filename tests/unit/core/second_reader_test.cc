// SPDX-License-Identifier: Apache-2.0
// Who reads again what a worker called damaged, and what follows from the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/worker/worker_abi.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kNewest[] = "step-20.g1";

// Nodes that train and a spare; the newest generation began with step-20.g1.
class SecondReader : public ::testing::Test {
 protected:
  void start(int32_t nodes = 3) {
    JobSpec spec = small_job("demo");
    spec.nodes = nodes;
    spec.spares = 1;
    spec.train->batch.global = spec.world_size();
    id_ = shell_.submit(spec);
    shell_.settle();
    shell_.progress(id_, 1);
    ASSERT_EQ(job().state, JobState::kRunning);
    shell_.feed(CheckpointCommitted{id_, job().generation, 20});
    shell_.checkpoint = kNewest;
    shell_.checkpoint_step = 20;
    shell_.exit_worker(id_, 0, 0, 9, 27);
    shell_.settle();
    ASSERT_EQ(job().checkpoint, kNewest);
  }
  // A worker of n1 cannot load it.
  void claim() {
    shell_.exit_worker(id_, 2, kExitCheckpointDamaged, 0, 20, "shard-00002.safetensors is gone");
    shell_.settle_kind("StopWorkers");
  }
  void start_and_claim(int32_t nodes = 3) {
    shell_.agents_confirm = true;
    start(nodes);
    claim();
  }
  const Job& job() const { return shell_.job(id_); }
  // Who is to read again; "" = no node.
  std::string reader() const {
    const auto orders = shell_.open(ActionKind::kConfirmDamage);
    return orders.size() == 1 ? std::get<ConfirmDamage>(orders[0]->body).node : "";
  }
  std::vector<const Action*> searches() const { return shell_.open(ActionKind::kFindCheckpoint); }
  // The checkpoint that the controller is to read again.
  std::string controller_reads() const {
    return searches().empty() ? "" : std::get<FindCheckpoint>(searches()[0]->body).claim.checkpoint;
  }
  void answer(DamageVerdict verdict, const std::string& what = "") {
    const auto orders = shell_.open(ActionKind::kConfirmDamage);
    ASSERT_EQ(orders.size(), 1U);
    shell_.feed(DamageAnswered{orders[0]->id, id_, reader(), verdict, what});
  }

  FakeShell shell_;
  JobId id_;
};

TEST_F(SecondReader, AnotherNodeReadsBeforeTheSearch) {
  start_and_claim();
  EXPECT_EQ(reader(), "n0");
  EXPECT_THAT(searches(), IsEmpty()) << "nothing is chosen before the claim is settled";
  const auto order = std::get<ConfirmDamage>(shell_.open(ActionKind::kConfirmDamage)[0]->body);
  EXPECT_EQ(order.claim.checkpoint, kNewest);
  EXPECT_EQ(order.claim.what, "shard-00002.safetensors is gone");
  EXPECT_EQ(order.newest, job().generation);
}

// Both on the controller's machine, worker and controller saw a file missing that was there.
TEST_F(SecondReader, SoundForAnotherNodeCondemnsNothing) {
  start_and_claim();
  answer(DamageVerdict::kSound);
  EXPECT_THAT(job().damaged, IsEmpty());
  EXPECT_EQ(shell_.node(id_, "n1").false_claims, 1);
  EXPECT_EQ(job().claim.checkpoint, "");
  ASSERT_EQ(searches().size(), 1U);
  EXPECT_EQ(controller_reads(), "") << "the claim is settled";
  shell_.settle();
  EXPECT_EQ(job().checkpoint, kNewest);
}

TEST_F(SecondReader, DamagedForAnotherNodeTakesTheNextOlder) {
  start_and_claim();
  shell_.checkpoint = "step-10.g1";
  shell_.checkpoint_step = 10;
  answer(DamageVerdict::kDamaged, "crc32c does not match");
  EXPECT_THAT(job().damaged, ElementsAre(kNewest));
  ASSERT_EQ(searches().size(), 1U);
  EXPECT_THAT(std::get<FindCheckpoint>(searches()[0]->body).exclude, ElementsAre(kNewest));
  EXPECT_THAT(shell_.log.back().cause, HasSubstr("looking for the checkpoint"));
  shell_.settle();
  EXPECT_EQ(job().checkpoint, "step-10.g1");
}

TEST_F(SecondReader, ControllersOwnNodeIsTheLastChoice) {
  shell_.controller_node = "n0";
  start_and_claim();
  EXPECT_EQ(reader(), "n2");
}

TEST_F(SecondReader, OlderAgentsLeaveItToTheController) {
  start();
  claim();
  EXPECT_EQ(reader(), "");
  EXPECT_EQ(controller_reads(), kNewest);
}

TEST_F(SecondReader, LateNodesAreFollowedByTheController) {
  start_and_claim();
  EXPECT_EQ(reader(), "n0");
  shell_.pass(job().limits.directory_ms);
  EXPECT_EQ(reader(), "n2");
  EXPECT_EQ(job().storage_since_ms, 0) << "nothing says that storage is away";
  shell_.pass(job().limits.directory_ms);
  EXPECT_EQ(reader(), "");
  EXPECT_EQ(controller_reads(), kNewest);
  shell_.settle();
  EXPECT_THAT(job().damaged, ElementsAre(kNewest));
}

// A spare, whose loss is no fault of the job.
TEST_F(SecondReader, LostNodeIsFollowedByAnother) {
  shell_.controller_node = "n0";
  start_and_claim(2);
  ASSERT_EQ(reader(), "n2");
  shell_.feed(NodeLost{id_, "n2", shell_.node(id_, "n2").boot_id, "its holder exited"});
  EXPECT_EQ(reader(), "n0");
  EXPECT_THAT(job().claim.asked, ElementsAre("n2"));
  answer(DamageVerdict::kSound);
  EXPECT_THAT(job().damaged, IsEmpty());
}

TEST_F(SecondReader, UnreadableWaitsAndAsksAnotherNode) {
  start_and_claim();
  answer(DamageVerdict::kUnreadable, "Input/output error");
  EXPECT_EQ(reader(), "");
  EXPECT_THAT(searches(), IsEmpty()) << "it waits for storage first";
  EXPECT_NE(job().storage_since_ms, 0);
  EXPECT_THAT(job().reason, HasSubstr("n0 cannot read step-20.g1 again: Input/output error"));
  EXPECT_THAT(job().damaged, IsEmpty());
  shell_.pass(1'000);
  EXPECT_EQ(reader(), "n2");
  answer(DamageVerdict::kUnreadable, "Input/output error");
  shell_.pass(1'000);
  EXPECT_EQ(controller_reads(), kNewest);
  shell_.feed(ActionFailed{searches()[0]->id, id_, "", "Input/output error", false});
  shell_.pass(5'000);
  EXPECT_EQ(reader(), "n0") << "the nodes are asked anew";
  answer(DamageVerdict::kSound);
  shell_.settle();
  EXPECT_EQ(job().checkpoint, kNewest);
}

TEST_F(SecondReader, OrderOutlivesTheController) {
  start_and_claim();
  shell_.restart();
  EXPECT_EQ(reader(), "n0");
  answer(DamageVerdict::kSound);
  EXPECT_THAT(job().damaged, IsEmpty());
  EXPECT_EQ(searches().size(), 1U);
}

TEST_F(SecondReader, SecondAnswerIsRefused) {
  start_and_claim();
  const ActionId order = shell_.open(ActionKind::kConfirmDamage)[0]->id;
  answer(DamageVerdict::kSound);
  const auto again =
      shell_.feed(DamageAnswered{order, id_, "n0", DamageVerdict::kDamaged, "crc32c"});
  EXPECT_THAT(again.refusal, HasSubstr("answered before"));
  EXPECT_THAT(job().damaged, IsEmpty());
}

// A checkpoint that the job resumes from by its path.
TEST_F(SecondReader, AbsolutePathIsReadByAnotherNodeToo) {
  shell_.agents_confirm = true;
  JobSpec spec = small_job("demo");
  spec.checkpoint.resume = "/other/step-7.g2";
  id_ = shell_.submit(spec);
  shell_.settle();
  ASSERT_EQ(job().checkpoint, "/other/step-7.g2");
  claim();
  EXPECT_EQ(reader(), "n0");
  EXPECT_THAT(searches(), IsEmpty());
  answer(DamageVerdict::kSound);
  EXPECT_THAT(job().damaged, IsEmpty());
  shell_.settle();
  EXPECT_EQ(job().checkpoint, "/other/step-7.g2");
  claim();
  answer(DamageVerdict::kDamaged, "it is missing");
  EXPECT_THAT(job().damaged, ElementsAre("/other/step-7.g2"));
}

// Two false words of a node, and it is not asked for a third.
TEST_F(SecondReader, NodeThatWasWrongTwiceIsNotAsked) {
  shell_.agents_confirm = true;
  start();
  shell_.state.nodes.at({id_, "n0"}).false_claims = kMaxFalseClaims;
  claim();
  EXPECT_EQ(reader(), "n2");
}

}  // namespace
}  // namespace hpctl::core
