// SPDX-License-Identifier: Apache-2.0
// Whom a job blames, and what the core makes of machines that other jobs have blamed.
#include "controller/core/blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/worker/worker_abi.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kLater = 2 * kFollowedMs;

class Blame : public ::testing::Test {
 protected:
  void begin(JobSpec spec) {
    id = shell.submit(spec);
    shell.settle();
    shell.progress(id, 1);
    ASSERT_EQ(shell.job(id).state, JobState::kRunning);
  }
  static JobSpec with_spares(int32_t spares) {
    JobSpec spec = small_job("demo");
    spec.spares = spares;
    return spec;
  }
  void lose(const std::string& node, bool unreachable) {
    shell.feed(NodeLost{.job = id,
                        .node = node,
                        .boot_id = shell.node(id, node).boot_id,
                        .cause = "no heartbeat",
                        .unreachable = unreachable});
  }
  // "n1 lost", in the order of the records, so long after now.
  std::vector<std::string> blamed(int64_t after_ms) const {
    std::vector<std::string> texts;
    for (const NodeRecord& record :
         blame_of(shell.state, shell.job(id), FakeShell::wall_ms(shell.now_ms) + after_ms)) {
      EXPECT_EQ(record.instance, "i-" + record.node);
      EXPECT_EQ(record.job, id.value);
      texts.push_back(record.node + " " + to_string(record.kind));
    }
    return texts;
  }

  FakeShell shell;
  JobId id;
};

// Exits, hangs and hooks gave points to healthy machines.
TEST_F(Blame, FaultsOfAProgramAreNoEvidence) {
  begin(with_spares(2));
  shell.exit_worker(id, 3, 0, 9, 5);
  shell.settle();
  shell.progress(id, 9);
  shell.exit_worker(id, 3, 1, 0, 9, "ValueError: bad batch");
  shell.settle();
  shell.progress(id, 12);
  shell.feed(HangDetected{id, shell.job(id).generation, "n1", Rank{2}, "why"});
  shell.settle();
  shell.progress(id, 15);
  EXPECT_THAT(blamed(kLater), IsEmpty());
}

// The storage is everybody's, and a learning rate is the user's.
TEST_F(Blame, StorageAndBadStepsAreNoEvidence) {
  begin(with_spares(2));
  shell.exit_worker(id, 3, kExitStorage, 0, 9, "cannot write: Stale file handle");
  shell.settle();
  shell.progress(id, 9);
  EXPECT_THAT(blamed(kLater), IsEmpty());
  BadStepFound unfit{};
  unfit.job = id;
  unfit.node = "n1";
  unfit.generation = shell.job(id).generation;
  unfit.number = 1;
  unfit.step = 12;
  unfit.outcome = BadStepOutcome::kStopped;
  unfit.reason = "the loss is NaN";
  shell.feed(unfit);
  shell.settle();
  EXPECT_THAT(blamed(kLater), IsEmpty());
}

TEST_F(Blame, AnUnfitNodeIsBlamedOnlyForItsHardware) {
  begin(with_spares(2));
  shell.feed(SpareFoundUnfit{id, "n2", shell.node(id, "n2").boot_id, "hook: exit code 1"});
  ASSERT_EQ(shell.node(id, "n2").quarantine.by, "hpctl");
  EXPECT_THAT(blamed(kLater), IsEmpty());
  shell.feed(HardwareFaultFound{id, "n0", shell.node(id, "n0").boot_id, "Xid 79", "", true});
  EXPECT_THAT(blamed(0), ElementsAre("n0 hardware"));
}

TEST_F(Blame, AMachineThatStoppedAnswering) {
  begin(with_spares(2));
  lose("n0", false);
  EXPECT_THAT(blamed(kLater), IsEmpty()) << "its holder was killed, the machine answers";
  shell.settle();
  shell.progress(id, 3);
  lose("n1", true);
  EXPECT_THAT(blamed(kExcusedWithinMs - 1), IsEmpty()) << "somebody may have taken it";
  EXPECT_THAT(blamed(kExcusedWithinMs), ElementsAre("n1 lost"));
  shell.restart();
  EXPECT_THAT(blamed(kExcusedWithinMs), ElementsAre("n1 lost")) << "the rows keep it";
}

// An administrator set the node DOWN; the controller saw its silence first.
TEST_F(Blame, NoMachineThatTurnsOutToBeTaken) {
  begin(with_spares(2));
  lose("n1", true);
  shell.feed(NodeLost{id, "n1", "", "DOWN by uid 0", true, false});
  shell.settle();
  EXPECT_THAT(blamed(kLater), IsEmpty());
  shell.progress(id, 3);
  shell.feed(NodeLost{id, "n0", shell.node(id, "n0").boot_id, "preempted", true, false});
  EXPECT_THAT(blamed(kLater), IsEmpty());
}

TEST_F(Blame, HangsThatEndedWhenTheJobLeftTheMachine) {
  begin(with_spares(1));
  for (uint64_t step = 10; step <= 30; step += 10) {
    shell.feed(HangDetected{id, shell.job(id).generation, "n1", Rank{2}, "why"});
    shell.settle();
    shell.progress(id, step);
  }
  ASSERT_EQ(shell.slot(id, 2).node, "n2") << "quarantined after three";
  EXPECT_THAT(blamed(0), IsEmpty());
  EXPECT_THAT(blamed(kLater), ElementsAre("n1 hang"));
  shell.now_ms += 1'000;
  shell.feed(HangDetected{id, shell.job(id).generation, "n2", Rank{2}, "why"});
  shell.settle();
  shell.progress(id, 40);
  EXPECT_THAT(blamed(kLater), IsEmpty()) << "it followed the rank";
}

TEST_F(Blame, NotWhomAPersonTakesOut) {
  begin(with_spares(1));
  shell.feed(QuarantineRequested{id, "n1", 1000, "maintenance", 0});
  shell.settle();
  shell.progress(id, 2);
  EXPECT_THAT(blamed(kLater), IsEmpty());
}

TEST_F(Blame, NothingOfAJobWhoseFaultsAreMadeOnPurpose) {
  JobSpec spec = with_spares(1);
  spec.chaos = true;
  begin(spec);
  lose("n1", true);
  EXPECT_THAT(blamed(kLater), IsEmpty());
}

TEST_F(Blame, ASpareThatIsALemonIsTakenLast) {
  shell.lemons = {"n2"};
  begin(with_spares(2));
  EXPECT_TRUE(shell.node(id, "n2").lemon);
  shell.feed(NodeLost{id, "n1", shell.node(id, "n1").boot_id, "its holder is gone"});
  shell.settle();
  EXPECT_EQ(shell.slot(id, 3).node, "n3");
  shell.restart();
  EXPECT_TRUE(shell.node(id, "n2").lemon) << "the rows keep it";
}

TEST_F(Blame, ALemonIsBetterThanNoSpare) {
  shell.lemons = {"n2"};
  begin(with_spares(1));
  shell.feed(NodeLost{id, "n1", shell.node(id, "n1").boot_id, "its holder is gone"});
  shell.settle();
  EXPECT_EQ(shell.slot(id, 3).node, "n2");
}

}  // namespace
}  // namespace hpctl::core
