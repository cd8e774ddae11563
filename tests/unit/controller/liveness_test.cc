// SPDX-License-Identifier: Apache-2.0
// When silent nodes are lost: heartbeat deadlines, and probes of those for which others wait.
#include <gtest/gtest.h>

#include <set>

#include "common/worker/worker_abi.h"
#include "controller/agents/liveness.h"
#include "controller/agents/progress.h"
#include "tests/unit/controller/progress_reports.h"

namespace hpctl {
namespace {

const core::NodeKey kNode{JobId{1}, "n0"};

using Sights = std::map<std::string, core::NodeObservation>;

Sights nothing_seen(JobId, const std::set<std::string>&) { return {}; }

std::vector<core::NodeLost> take_lost(Liveness& table, int64_t now_ms) {
  return table.judge(now_ms, nothing_seen).lost;
}

TEST(Liveness, ANodeIsLostAfterItsDeadlineAndOnlyOnce) {
  Liveness table;
  table.watch(kNode, "life", 2'000, 0);
  table.heard(kNode, "life", 1'500);
  table.heard(kNode, "former life", 3'000);
  EXPECT_TRUE(take_lost(table, 3'500).empty());
  const auto lost = take_lost(table, 3'501);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].boot_id, "life");
  EXPECT_EQ(lost[0].cause, "no heartbeat for 2001 ms (limit 2000 ms)");
  EXPECT_TRUE(take_lost(table, 9'000).empty());
}

TEST(Liveness, AStallOfTheControllerIsNobodysFault) {
  Liveness table;
  table.watch(kNode, "life", 2'000, 0);
  table.rearm(60'000);
  EXPECT_TRUE(take_lost(table, 61'000).empty());
  EXPECT_EQ(take_lost(table, 62'001).size(), 1U);
}

TEST(Liveness, ANodeThatSaidGoodbyeIsNotWatched) {
  Liveness table;
  table.watch(kNode, "life", 2'000, 0);
  table.forget(kNode, "other");
  table.forget(kNode, "life");
  EXPECT_TRUE(take_lost(table, 9'000).empty());
}

TEST(Liveness, ANodeWhoseStreamHasEndedIsLostAfterItsDeadline) {
  Liveness table;
  table.watch(kNode, "life", 2'000, 0);
  table.closed(kNode, "other", 0);
  EXPECT_EQ(table.heard_nodes(kNode.job, 0).size(), 1U);
  table.closed(kNode, "life", 0);
  EXPECT_TRUE(table.heard_nodes(kNode.job, 0).empty());
  EXPECT_TRUE(take_lost(table, 2'000).empty());
  const auto lost = take_lost(table, 2'001);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].boot_id, "life");
  EXPECT_TRUE(take_lost(table, 9'000).empty()) << "once";
}

// A stream stays open for a while after the network behind it has gone.
TEST(Liveness, ANodeIsHeardWhoseBeatsCameWhenTheyWereDue) {
  constexpr int64_t kEvery = 2'000;
  constexpr int64_t kLongest = Liveness::kHeardMs;
  const auto is_heard = [](Liveness& table, int64_t now_ms) {
    return !table.heard_nodes(kNode.job, now_ms).empty();
  };
  Liveness table;
  table.watch(kNode, "life", 60'000, 0);
  table.heard(kNode, "life", 100);
  EXPECT_TRUE(is_heard(table, 100 + kLongest));
  EXPECT_FALSE(is_heard(table, 101 + kLongest));

  table.may_beat_seldom(kNode, "life", kEvery);
  EXPECT_TRUE(is_heard(table, 100 + kEvery + kLongest));
  EXPECT_FALSE(is_heard(table, 101 + kEvery + kLongest));

  table.asked_to_beat(kNode, "life", 10'000);
  EXPECT_TRUE(is_heard(table, 10'000 + kLongest)) << "until then no beat was due";
  EXPECT_FALSE(is_heard(table, 10'001 + kLongest));
  table.heard(kNode, "life", 20'000);
  EXPECT_TRUE(is_heard(table, 20'000 + kLongest));
}

TEST(Liveness, TheStreamsOfASuspendedJobSayThatItsNodesAreThere) {
  Liveness table;
  table.watch(kNode, "life", 2'000, 0);
  table.suspend(kNode.job);
  EXPECT_EQ(table.heard_nodes(kNode.job, 60'000).size(), 1U);
  table.rearm(kNode.job, 60'000);
  EXPECT_EQ(table.heard_nodes(kNode.job, 60'000).size(), 1U);
  EXPECT_TRUE(table.heard_nodes(kNode.job, 60'001 + Liveness::kHeardMs).empty());
}

// The controller asks the scheduler whether the job is suspended. A controller that is cut off may
// get no answer, which is no sign of life.
TEST(Liveness, AJobThatMayBeSuspendedIsNotHeard) {
  Liveness table;
  table.watch(kNode, "life", 10'000, 0);
  EXPECT_EQ(table.take_silent_jobs(5'001).size(), 1U);
  EXPECT_TRUE(table.heard_nodes(kNode.job, 5'001).empty());
}

TEST(Liveness, ANodeThatIsBackIsNotLostForHavingBeenAway) {
  Liveness table;
  table.watch(kNode, "life", 2'000, 0);
  table.closed(kNode, "life", 0);
  table.heard(kNode, "life", 1'900);  // its registration, which is being committed
  EXPECT_TRUE(take_lost(table, 3'900).empty());
  table.watch(kNode, "life", 2'000, 3'900);
  EXPECT_TRUE(take_lost(table, 5'900).empty());
}

TEST(Liveness, ANodeThatIsSeenToTrainIsNotLostUntilNothingMoves) {
  for (const bool is_closed : {false, true}) {
    Liveness table;
    const core::NodeKey spare{JobId{1}, "n1"};
    table.watch(kNode, "life", 2'000, 0);
    table.watch(spare, "other", 2'000, 0);
    if (is_closed) table.closed(kNode, "life", 0);
    int64_t still_ms = 0;
    const auto sight = [&](JobId, const std::set<std::string>& silent) {
      Sights sights;
      for (const std::string& node : silent) {
        sights[node].training = core::TrainingSight::kSeen;
        sights[node].still_ms = still_ms;
      }
      sights[kNode.name].trained_ms = still_ms;
      return sights;
    };
    const auto without_ranks = table.judge(60'000, sight).lost;
    ASSERT_EQ(without_ranks.size(), 1U) << is_closed;
    EXPECT_EQ(without_ranks[0].node, spare.name);
    still_ms = 2'000;
    EXPECT_TRUE(table.judge(62'000, sight).lost.empty()) << is_closed;
    still_ms = 2'001;
    EXPECT_EQ(table.judge(62'001, sight).lost.size(), 1U) << is_closed;
  }
}

TEST(Liveness, WhetherAllNodesAreSilentThoseSayWhoseStreamsAreOpen) {
  Liveness table;
  const core::NodeKey other{JobId{1}, "n1"};
  table.watch(kNode, "a", 2'000, 0);
  table.watch(other, "b", 2'000, 0);
  table.closed(kNode, "a", 0);
  table.heard(other, "b", 59'500);
  EXPECT_TRUE(table.take_silent_jobs(60'000).empty());
  EXPECT_EQ(table.take_silent_jobs(60'501).size(), 1U) << "the closed one is not asked";
  table.answered(JobId{1});
  table.heard(other, "b", 61'000);
  table.closed(other, "b", 61'000);
  EXPECT_TRUE(table.take_silent_jobs(90'000).empty()) << "nobody is left whose silence says it";
}

TEST(Liveness, SilenceOfAllNodesOfAJobIsAskedAboutFirst) {
  Liveness table;
  const core::NodeKey other{JobId{1}, "n1"};
  table.watch(kNode, "a", 2'000, 0);
  table.watch(other, "b", 2'000, 0);
  table.heard(other, "b", 1'000);
  EXPECT_TRUE(table.take_silent_jobs(2'000).empty()) << "one is heard";
  EXPECT_EQ(table.take_silent_jobs(2'001), std::vector<JobId>{JobId{1}}) << "before one is lost";
  EXPECT_TRUE(table.take_silent_jobs(3'600).empty()) << "asked once";
  EXPECT_TRUE(take_lost(table, 60'000).empty()) << "nobody has answered";
  table.rearm(JobId{1}, 60'000);  // it was suspended, and goes on
  EXPECT_TRUE(take_lost(table, 61'000).empty());
  EXPECT_EQ(table.take_silent_jobs(63'000).size(), 1U) << "its silence counts anew";
  table.answered(JobId{1});
  EXPECT_EQ(take_lost(table, 63'000).size(), 2U);
}

TEST(Liveness, NoNodeOfASuspendedJobIsLostThoughAnotherIsHeard) {
  Liveness table;
  const core::NodeKey other{JobId{1}, "n1"};
  table.watch(kNode, "a", 2'000, 0);
  table.watch(other, "b", 2'000, 0);
  table.suspend(JobId{1});
  table.heard(other, "b", 59'000);  // of before: the scheduler stops one node after the other
  EXPECT_TRUE(take_lost(table, 60'000).empty());
  table.rearm(JobId{1}, 60'000);
  EXPECT_TRUE(take_lost(table, 62'000).empty());
  EXPECT_EQ(take_lost(table, 62'001).size(), 2U);
}

// A job whose other ranks wait in a collective, and a node of it whose holder can be probed.
class WaitedFor : public ::testing::Test {
 protected:
  static Sights others_wait(JobId, const std::set<std::string>&) {
    Sights sights;
    core::NodeObservation& seen = sights[kNode.name];
    seen.training = core::TrainingSight::kSeen;
    seen.still_ms = core::kStillMs;
    seen.peers_wait = true;
    return sights;
  }

  WaitedFor() { table_.watch(kNode, "life", 10'000, 0, "10.0.0.1:7000"); }
  // Probes as the answer says; false when none was asked for.
  bool probe(int64_t now_ms, core::HolderProbe answer) {
    const auto findings = table_.judge(now_ms, others_wait);
    EXPECT_TRUE(findings.lost.empty());
    if (findings.probes.size() != 1) return false;
    EXPECT_EQ(findings.probes[0].address, "10.0.0.1:7000");
    table_.probed(findings.probes[0], answer);
    return true;
  }

  void register_it() {
    ASSERT_TRUE(probe(10, core::HolderProbe::kAnswered));
    table_.heard(kNode, "life", 20);
  }

  Liveness table_;
};

TEST_F(WaitedFor, AnUnansweredProbeLosesTheNode) {
  register_it();
  table_.heard(kNode, "life", 1'000);
  EXPECT_FALSE(probe(1'299, core::HolderProbe::kUnanswered)) << "two beats may be late";
  ASSERT_TRUE(probe(1'300, core::HolderProbe::kUnanswered));
  EXPECT_TRUE(table_.judge(1'599, others_wait).lost.empty());
  const auto lost = table_.judge(1'600, others_wait).lost;
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].boot_id, "life");
}

TEST_F(WaitedFor, ANodeThatMayBeatSeldomIsJudgedFromWhereItWasAsked) {
  register_it();
  table_.may_beat_seldom(kNode, "life", 2'000);
  EXPECT_FALSE(probe(2'500, core::HolderProbe::kUnanswered));
  table_.asked_to_beat(kNode, "other", 2'500);
  EXPECT_FALSE(probe(2'900, core::HolderProbe::kUnanswered)) << "that was another life";
  table_.asked_to_beat(kNode, "life", 3'000);
  EXPECT_FALSE(probe(3'099, core::HolderProbe::kUnanswered));
  ASSERT_TRUE(probe(3'100, core::HolderProbe::kUnanswered));
  EXPECT_TRUE(table_.judge(3'399, others_wait).lost.empty());
  EXPECT_EQ(table_.judge(3'400, others_wait).lost.size(), 1U);
}

TEST_F(WaitedFor, ANodeThatHasAnsweredIsJudgedAsAnyOther) {
  register_it();
  table_.may_beat_seldom(kNode, "life", 2'000);
  table_.asked_to_beat(kNode, "life", 3'000);
  table_.heard(kNode, "life", 3'010);
  EXPECT_FALSE(probe(3'309, core::HolderProbe::kUnanswered)) << "two beats may be late";
  ASSERT_TRUE(probe(3'310, core::HolderProbe::kUnanswered));
  EXPECT_TRUE(table_.judge(3'609, others_wait).lost.empty());
}

TEST_F(WaitedFor, TheEndOfAStreamMakesTheNextOneDue) {
  register_it();
  table_.may_beat_seldom(kNode, "life", 2'000);
  table_.closed(kNode, "life", 2'000);
  EXPECT_FALSE(probe(2'299, core::HolderProbe::kRefused));
  EXPECT_TRUE(probe(2'300, core::HolderProbe::kRefused));
}

TEST_F(WaitedFor, ARefusedProbeLosesTheNodeAlsoWhenItsStreamHasEnded) {
  register_it();
  table_.closed(kNode, "life", 20);
  ASSERT_TRUE(probe(320, core::HolderProbe::kRefused));
  EXPECT_EQ(table_.judge(420, others_wait).lost.size(), 1U);
}

TEST_F(WaitedFor, ANodeThatTheCoreHasGivenUpIsNotProbed) {
  register_it();
  table_.given_up(kNode);  // another life of it, say: this stream is watched on
  EXPECT_EQ(table_.heard_nodes(kNode.job, 700).size(), 1U);
  table_.closed(kNode, "life", 700);
  table_.given_up(kNode);
  EXPECT_FALSE(probe(700, core::HolderProbe::kRefused));
}

// It has not registered with this controller; the one before ran there.
class Expected : public WaitedFor {
 protected:
  Expected() {
    table_.forget(kNode, "life");
    table_.expect(kNode, 10'000, 0, "10.0.0.1:7000");
  }
};

TEST_F(Expected, AMachineThatDoesNotAnswerIsLostWhileTheOthersWait) {
  ASSERT_TRUE(probe(310, core::HolderProbe::kUnanswered));
  EXPECT_TRUE(table_.judge(599, others_wait).lost.empty());
  const auto lost = table_.judge(600, others_wait).lost;
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].node, kNode.name);
  EXPECT_EQ(lost[0].boot_id, "") << "no life of it is known";
  EXPECT_TRUE(table_.judge(20'000, others_wait).lost.empty()) << "once";
}

TEST_F(Expected, AMachineThatRefusesHasOnlyLostItsController) {
  for (int64_t now = 10; now < 9'000; now += 502) {
    ASSERT_TRUE(probe(now, core::HolderProbe::kRefused)) << now;
    EXPECT_TRUE(table_.judge(now + 499, others_wait).lost.empty()) << now;
  }
}

TEST_F(Expected, OneThatTrainsOnIsNotLost) {
  const auto goes_on = [](JobId, const std::set<std::string>&) {
    Sights sights;
    sights[kNode.name].training = core::TrainingSight::kSeen;
    sights[kNode.name].trained_ms = 10;
    return sights;
  };
  table_.probed({kNode, "", ""}, core::HolderProbe::kUnanswered);
  for (int64_t now = 600; now < 60'000; now += 500) {
    EXPECT_TRUE(table_.judge(now, goes_on).lost.empty()) << now;
  }
}

TEST_F(Expected, ItIsWatchedUntilItRegistersOrIsGivenUp) {
  EXPECT_TRUE(table_.heard_nodes(kNode.job, 0).empty());
  table_.given_up(kNode, true);  // its row says that it is awaited
  EXPECT_TRUE(probe(10, core::HolderProbe::kUnanswered));
  table_.given_up(kNode);
  EXPECT_TRUE(table_.judge(20'000, others_wait).lost.empty());

  table_.expect(kNode, 10'000, 0, "10.0.0.1:7000");
  table_.forget(kNode, "");  // it registers
  EXPECT_TRUE(table_.judge(20'000, others_wait).lost.empty());
  table_.watch(kNode, "life", 10'000, 20'000);
  table_.expect(kNode, 10'000, 0, "10.0.0.1:7000");  // too late
  EXPECT_TRUE(table_.judge(29'999, others_wait).lost.empty());
}

TEST_F(WaitedFor, ABusyNodeAnswersItsProbesAndIsAskedAgain) {
  register_it();
  for (int64_t now = 320; now < 9'000; now += 501) {
    EXPECT_TRUE(probe(now, core::HolderProbe::kAnswered)) << now;
    EXPECT_FALSE(probe(now + 100, core::HolderProbe::kAnswered)) << now;
  }
}

TEST_F(WaitedFor, AProbeThatNeverWasAnsweredSaysNothing) {
  ASSERT_TRUE(probe(10, core::HolderProbe::kRefused)) << "a firewall";
  EXPECT_FALSE(probe(9'000, core::HolderProbe::kRefused));
}

TEST_F(WaitedFor, AnAnswerOfAnEarlierSilenceDoesNotCount) {
  register_it();
  ASSERT_TRUE(probe(400, core::HolderProbe::kUnanswered));
  table_.heard(kNode, "life", 450);
  EXPECT_TRUE(probe(850, core::HolderProbe::kAnswered));
}

TEST_F(WaitedFor, AnAnswerThatNeverComesIsAskedForAgain) {
  register_it();
  EXPECT_EQ(table_.judge(400, others_wait).probes.size(), 1U);
  EXPECT_TRUE(table_.judge(1'400, others_wait).probes.empty());
  EXPECT_EQ(table_.judge(1'401, others_wait).probes.size(), 1U);
}

}  // namespace
}  // namespace hpctl
