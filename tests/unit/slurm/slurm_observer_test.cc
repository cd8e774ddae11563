// SPDX-License-Identifier: Apache-2.0
// What two looks at Slurm differ in, and what HyperPod's reasons mean.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/schedulers/slurm/node_replacement.h"
#include "controller/schedulers/slurm/slurm_observer.h"

namespace hpctl {
namespace {

using Kind = SlurmObservation::Kind;
using testing::ElementsAre;
using testing::IsEmpty;

SlurmJob job(const std::vector<std::string>& nodes) {
  SlurmJob out;
  out.state = "RUNNING";
  out.reason = "None";
  out.nodes = nodes;
  return out;
}

SlurmNode node(const std::string& name, const std::string& state,
               const std::vector<std::string>& flags = {}, const std::string& reason = "") {
  SlurmNode out;
  out.name = name;
  out.state = state;
  out.flags = flags;
  out.reason = reason;
  return out;
}

TEST(SlurmObserver, NothingHappens) {
  SlurmObserver observer;
  const std::vector<SlurmNode> nodes = {node("n1", "MIXED"), node("n2", "ALLOCATED")};
  EXPECT_THAT(observer.compare(job({"n1", "n2"}), nodes), IsEmpty());
  EXPECT_THAT(observer.compare(job({"n1", "n2"}), {node("n1", "ALLOCATED"), nodes[1]}), IsEmpty())
      << "what other jobs do is no news";
}

// The successor of a controller whose node is gone: Slurm may have noticed before it began to look.
TEST(SlurmObserver, ANodeThatWasTakenBeforeTheFirstLookIsMissed) {
  SlurmObserver observer({"n1", "n2"});
  const auto seen = observer.compare(job({"n1"}), {node("n1", "MIXED"), node("n2", "DOWN")});
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[1].kind, Kind::kTaken);
  EXPECT_EQ(seen[1].node, "n2");
  EXPECT_THAT(observer.compare(job({"n1"}), {node("n1", "MIXED"), node("n2", "DOWN")}), IsEmpty());
}

// libslurm shows a node that an administrator set DOWN as MIXED while its work is being ended.
TEST(SlurmObserver, ATakenNodeIsNotCalledMixed) {
  SlurmObserver observer;
  observer.compare(job({"n1", "n2"}), {node("n1", "MIXED"), node("n2", "MIXED")});
  const auto seen = observer.compare(
      job({"n1"}), {node("n1", "MIXED"), node("n2", "MIXED", {"COMPLETING"}, "ticket 7")});
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].what, "Slurm took it out of the allocation (ticket 7)");
}

TEST(SlurmObserver, ANodeIsLostAndReturns) {
  SlurmObserver observer;
  observer.compare(job({"n1", "n2"}), {node("n1", "MIXED"), node("n2", "MIXED")});
  const SlurmNode silent = node("n2", "MIXED", {"NOT_RESPONDING"});
  EXPECT_THAT(
      observer.compare(job({"n1", "n2"}), {node("n1", "MIXED"), silent}),
      ElementsAre(SlurmObservation{Kind::kNote, "n2", "Slurm shows n2 as MIXED+NOT_RESPONDING"}));
  const SlurmNode down = node("n2", "DOWN", {"NOT_RESPONDING"}, "Not responding");
  EXPECT_THAT(
      observer.compare(job({"n1"}), {node("n1", "MIXED"), down}),
      ElementsAre(SlurmObservation{Kind::kNote, "n2",
                                   "Slurm shows n2 as DOWN+NOT_RESPONDING (Not responding)", false},
                  SlurmObservation{Kind::kTaken, "n2",
                                   "Slurm took it out of the allocation: DOWN+NOT_RESPONDING (Not "
                                   "responding)",
                                   false, false, true}));
  EXPECT_THAT(
      observer.compare(job({"n1"}), {node("n1", "MIXED"), node("n2", "IDLE")}),
      ElementsAre(SlurmObservation{Kind::kReturned, "n2", "Slurm can use n2 again: IDLE", false}));
}

TEST(SlurmObserver, AFailingNodeIsMarkedOnceAndAgainWhenTheReasonChanges) {
  SlurmObserver observer;
  const auto look = [&](const std::string& reason) {
    return observer.compare(job({"n1"}), {node("n1", "MIXED", {"FAIL"}, reason)});
  };
  EXPECT_THAT(
      look("Action:Replace"),
      ElementsAre(SlurmObservation{Kind::kMarked, "n1",
                                   "Slurm shows n1 as MIXED+FAIL (Action:Replace)", true, true}));
  EXPECT_THAT(look("Action:Replace"), IsEmpty());
  EXPECT_EQ(look("Action:Replace : Not responding").size(), 1U);
}

TEST(SlurmObserver, TheJobsStateAndItsPendingReason) {
  SlurmObserver observer;
  observer.compare(job({"n1"}), {});
  SlurmJob pending = job({});
  pending.state = "PENDING";
  pending.reason = "BeginTime";
  pending.flags = {"COMPLETING"};
  EXPECT_THAT(observer.compare(pending, {}),
              ElementsAre(SlurmObservation{
                  Kind::kNote, "", "Slurm shows the job as PENDING+COMPLETING (BeginTime)"}))
      << "a requeue takes no node away from a job that runs";
  pending.reason = "Resources";
  EXPECT_EQ(observer.compare(pending, {}).size(), 1U);
  EXPECT_THAT(observer.compare(pending, {}), IsEmpty());
}

TEST(NodeReplacement, StringsAreExact) {
  EXPECT_STREQ(kReplaceReason, "Action:Replace");
  EXPECT_STREQ(kRebootReason, "Action:Reboot");
}

TEST(NodeReplacement, IsAskedForOnceAndOnlyWhenWorkHasLeft) {
  SlurmNode bad = node("n1", "MIXED", {"FAIL"});
  bad.instance_id = "i-1";
  EXPECT_EQ(next_step(bad, {false, "i-1"}, true), ReplacementStep::kWait);
  EXPECT_EQ(next_step(bad, {false, "i-1"}, false), ReplacementStep::kAsk);
  EXPECT_EQ(next_step(bad, {}, false), ReplacementStep::kAsk) << "identity unknown";
  for (const char* reason :
       {"Action:Replace", "Action:Reboot", "Action:Replace : Not responding"}) {
    bad.reason = reason;
    EXPECT_EQ(next_step(bad, {false, "i-1"}, false), ReplacementStep::kStandBack) << reason;
    EXPECT_EQ(next_step(bad, {false, "i-1"}, true), ReplacementStep::kStandBack) << reason;
  }
  for (const char* reason : {"Not responding", "Not responding [slurm@2026-11-27T18:00:00]",
                             "Kill task failed", "gres/gpu count reported lower than configured"}) {
    bad.reason = reason;
    EXPECT_EQ(next_step(bad, {false, "i-1"}, false), ReplacementStep::kAsk) << reason;
  }
  bad.reason = "";
  bad.boot_time_s = 1'000;
  EXPECT_EQ(next_step(bad, {true, "i-1", 1'000'000}, false), ReplacementStep::kAsk);
  EXPECT_EQ(next_step(bad, {true, "i-1", 999'000}, false), ReplacementStep::kRebooted);
  EXPECT_EQ(next_step(bad, {false, "i-1", 999'000}, false), ReplacementStep::kAsk)
      << "a reboot is not what was wanted";
  bad.reason = "Action:Replace";
  bad.instance_id = "i-2";
  EXPECT_EQ(next_step(bad, {false, "i-1"}, false), ReplacementStep::kReplaced);
}

// An administrator's drain was overwritten, and HyperPod put the node back into service.
TEST(NodeReplacement, ForeignReasonIsNeverOverwritten) {
  for (const char* reason :
       {"ticket 7", "action:replace", " Action:Replace", "NHC: check failed"}) {
    const SlurmNode drained = node("n1", "MIXED", {"DRAIN"}, reason);
    EXPECT_EQ(next_step(drained, {false, "i-1"}, false), ReplacementStep::kForeign) << reason;
    EXPECT_EQ(next_step(drained, {true, "i-1"}, true), ReplacementStep::kForeign) << reason;
  }
  const SlurmNode back = node("n1", "IDLE", {}, "ticket 7");
  EXPECT_EQ(next_step(back, {false, "i-1"}, false), ReplacementStep::kAsk) << "it is in service";
}

TEST(NodeReplacement, AReasonThatOutlivedItsFaultIsNoRequest) {
  const SlurmNode back = node("n1", "IDLE", {}, "Action:Replace");
  EXPECT_FALSE(is_recovery_requested(back));
  EXPECT_EQ(next_step(back, {false, "i-1"}, false), ReplacementStep::kAsk);
}

}  // namespace
}  // namespace hpctl
