// SPDX-License-Identifier: Apache-2.0
// The supervisor as scripts: what happens, and the decisions that must follow, word for word.
#include "agent/core/supervisor.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "agent/core/reconnect.h"
#include "common/job/limits.h"

namespace hpctl::agent {
namespace {

std::string text(const Decision& decision) {
  std::ostringstream out;
  if (const auto* accept = std::get_if<AcceptGeneration>(&decision)) {
    out << "accept " << accept->generation;
  } else if (const auto* kill = std::get_if<KillThrough>(&decision)) {
    out << "kill<=" << kill->generation << " grace " << kill->grace_ms;
    if (kill->abort_ms > 0) out << " abort " << kill->abort_ms;
    if (kill->stacks) out << " stacks";
  } else if (const auto* spawn = std::get_if<SpawnRank>(&decision)) {
    out << "spawn g" << spawn->generation << " r" << spawn->rank << "/" << spawn->local_rank;
  } else if (const auto* done = std::get_if<Done>(&decision)) {
    out << "done " << done->key.seq;
    for (const StartedWorker& worker : done->workers)
      out << " r" << worker.rank << "=" << worker.pid;
  } else if (const auto* failed = std::get_if<Failed>(&decision)) {
    out << "failed " << failed->key.seq << (failed->permanent ? " for good: " : ": ")
        << failed->reason;
  } else {
    out << "node is done";
  }
  return out.str();
}

std::string text(const Decisions& decisions) {
  std::string result;
  for (const Decision& decision : decisions) {
    result += (result.empty() ? "" : "; ") + text(decision);
  }
  return result;
}

StartRequest start(uint64_t seq, uint64_t generation, std::vector<int32_t> ranks) {
  return {{seq, 0}, generation, std::move(ranks)};
}
StopRequest stop(uint64_t seq, uint64_t generation, uint32_t grace_ms = 0) {
  return {{seq, 0}, generation, grace_ms};
}

TEST(Supervisor, StartsOnAnEmptyNode) {
  Supervisor s(0, 0);
  EXPECT_EQ(text(s.start(start(1, 1, {4, 5}))), "accept 1; spawn g1 r4/0; spawn g1 r5/1");
  EXPECT_EQ(text(s.start(start(1, 1, {4, 5}))), "") << "a repetition while it starts";
  EXPECT_EQ(text(s.spawned({100, 4, 1, 100}, true)), "");
  EXPECT_EQ(text(s.spawned({101, 5, 1, 101}, true)), "done 1 r4=100 r5=101");
  EXPECT_EQ(text(s.start(start(1, 1, {4, 5}))), "done 1 r4=100 r5=101") << "the same answer";
  EXPECT_EQ(s.running().size(), 2U);
  EXPECT_EQ(text(s.exited(100)), "");
  EXPECT_EQ(text(s.start(start(1, 1, {4, 5}))), "done 1 r4=100 r5=101") << "no second spawn";
}

TEST(Supervisor, AnExitIsOfAProcessNotOfItsPart) {
  Supervisor s(0, 0);
  s.start(start(1, 1, {0}));
  s.spawned({7, 0, 1, 100}, false);
  s.spawned({8, 0, 1, 101}, true);
  s.stop(stop(2, 1));
  EXPECT_EQ(text(s.exited(7)), "") << "of the process before";
  EXPECT_EQ(text(s.exited(8)), "done 2");
}

TEST(Supervisor, EndsLeftoversBeforeAHigherGeneration) {
  Supervisor s(0, 0);
  s.start(start(1, 1, {0, 1}));
  s.spawned({100, 0, 1, 100}, true);
  s.spawned({101, 1, 1, 101}, true);
  EXPECT_EQ(text(s.start(start(2, 2, {0, 1}))), "accept 2; kill<=1 grace 0");
  EXPECT_EQ(text(s.exited(101)), "");
  EXPECT_EQ(text(s.exited(100)), "spawn g2 r0/0; spawn g2 r1/1");
}

TEST(Supervisor, RefusesStaleAndEndedGenerations) {
  Supervisor s(5, 3);
  EXPECT_EQ(text(s.start(start(1, 4, {0}))),
            "failed 1: generation 4 is stale: this node has seen generation 5");
  EXPECT_EQ(text(s.stop(stop(2, 6))), "kill<=6 grace 0; done 2");
  EXPECT_EQ(text(s.start(start(3, 6, {0}))), "failed 3: generation 6 was ended on this node");
  EXPECT_EQ(text(s.start(start(4, 7, {0}))), "accept 7; spawn g7 r0/0");
}

TEST(Supervisor, ANewAgentGoesOnWhereTheOldOneStopped) {
  Supervisor s(3, 2);
  s.spawned({100, 0, 3, 100}, true);
  s.spawned({101, 1, 3, 101}, false);
  EXPECT_EQ(text(s.start(start(9, 3, {0, 1, 2}))), "spawn g3 r2/2");
  EXPECT_EQ(text(s.spawned({102, 2, 3, 102}, true)), "done 9 r0=100 r1=101 r2=102");
}

TEST(Supervisor, StopWaitsForTheLastWorker) {
  Supervisor s(0, 0);
  s.start(start(1, 1, {0, 1}));
  s.spawned({100, 0, 1, 100}, true);
  s.spawned({101, 1, 1, 101}, true);
  EXPECT_EQ(text(s.stop(stop(2, 1, 500))), "kill<=1 grace 500");
  EXPECT_EQ(text(s.stop(stop(2, 1, 500))), "") << "a repetition";
  EXPECT_EQ(text(s.exited(100)), "");
  EXPECT_EQ(text(s.exited(101)), "done 2");
  EXPECT_EQ(text(s.stop(stop(2, 1, 500))), "kill<=1 grace 500; done 2");
}

TEST(Supervisor, AProcessThatIdlesIsGoneFromItsGenerationAndMayHaveAPartInTheNext) {
  Supervisor s(0, 0);
  s.start(start(1, 1, {0, 1}));
  s.spawned({100, 0, 1, 100}, true);
  s.spawned({101, 1, 1, 101}, true);
  EXPECT_EQ(text(s.stop({{2, 0}, 1, 0, 500, true})), "kill<=1 grace 0 abort 500 stacks");
  EXPECT_EQ(text(s.exited(101)), "");
  EXPECT_EQ(text(s.spawned({100, 0, 1, 100}, false)), "done 2");
  EXPECT_EQ(text(s.start(start(3, 2, {0, 1}))), "accept 2; spawn g2 r0/0; spawn g2 r1/1");
  s.spawned({100, 0, 2, 100}, true);
  EXPECT_EQ(text(s.spawned({102, 1, 2, 102}, true)), "done 3 r0=100 r1=102");
  EXPECT_EQ(text(s.spawned({103, 1, 1, 103}, false)), "") << "one of a generation that is over";
  EXPECT_EQ(s.running().size(), 2U);
}

TEST(Supervisor, StopDuringAStartCountsSpawnsUnderWay) {
  Supervisor s(0, 0);
  s.start(start(1, 1, {0}));
  EXPECT_EQ(text(s.stop(stop(2, 1))),
            "kill<=1 grace 0; failed 1: generation 1 was ended while it started");
  EXPECT_EQ(text(s.spawned({100, 0, 1, 100}, true)), "") << "it may have started before the kill";
  EXPECT_EQ(text(s.exited(100)), "done 2");
}

TEST(Supervisor, AFailedSpawnFailsTheStartAndEndsTheRest) {
  Supervisor s(0, 0);
  s.start(start(1, 1, {0, 1}));
  s.spawned({100, 0, 1, 100}, true);
  EXPECT_EQ(text(s.spawn_failed(1, 1, "no such file", true)),
            "failed 1 for good: rank 1: no such file; kill<=1 grace 0");
  EXPECT_EQ(text(s.start(start(2, 2, {0, 1}))), "accept 2; kill<=1 grace 0");
  EXPECT_EQ(text(s.exited(100)), "spawn g2 r0/0; spawn g2 r1/1");
}

TEST(Supervisor, AHigherGenerationSupersedesAStart) {
  Supervisor s(0, 0);
  s.start(start(1, 1, {0}));
  EXPECT_EQ(text(s.start(start(2, 2, {0}))),
            "failed 1: superseded by generation 2; accept 2; kill<=1 grace 0");
  EXPECT_EQ(text(s.spawned({100, 0, 1, 100}, true)), "");
  EXPECT_EQ(text(s.exited(100)), "spawn g2 r0/0");
}

TEST(Supervisor, EndOfTheNodeIsSaidOnceAndStartsNothingMore) {
  Supervisor s(0, 0);
  s.start(start(1, 1, {0}));
  s.spawned({100, 0, 1, 100}, true);
  EXPECT_EQ(text(s.end(true)), "kill<=18446744073709551615 grace 1000 stacks");
  EXPECT_EQ(text(s.end(false)), "");
  EXPECT_EQ(text(s.start(start(3, 2, {0}))), "failed 3: the node is ending");
  EXPECT_EQ(text(s.exited(100)), "node is done");
}

TEST(Supervisor, UnknownEventsChangeNothing) {
  Supervisor s(0, 0);
  EXPECT_EQ(text(s.exited(909)), "");
  EXPECT_EQ(text(s.spawn_failed(9, 9, "x", true)), "");
  EXPECT_EQ(text(s.start(start(1, 1, {}))), "accept 1; done 1");
}

TEST(Backoff, GrowsToItsLimitWithJitterAndStartsAnew) {
  Backoff backoff;
  Rng rng(1);
  int64_t expected = Backoff::kFirstMs;
  for (int i = 0; i < 20; ++i) {
    const int64_t pause = backoff.next(rng);
    EXPECT_LE(pause, expected);
    EXPECT_GE(pause, expected / 2);
    expected = std::min(Backoff::kLongestMs, expected * 2);
  }
  backoff.reset();
  EXPECT_LE(backoff.next(rng), Backoff::kFirstMs);
}

TEST(OrphanWatch, StartsAControllerSoonAndGivesUpAtTheTimeout) {
  OrphanWatch watch(1'000, 60'000);
  EXPECT_FALSE(watch.start_controller_now(1'099));
  EXPECT_EQ(watch.next_deadline_ms(), 1'100);
  EXPECT_TRUE(watch.start_controller_now(1'100));
  EXPECT_FALSE(watch.start_controller_now(1'101)) << "not before the next try is due";
  EXPECT_EQ(watch.next_deadline_ms(), 4'100);
  EXPECT_FALSE(watch.expired(60'999));
  EXPECT_TRUE(watch.expired(61'000)) << "60 s before any welcome";

  watch.welcomed(500);
  EXPECT_FALSE(watch.expired(1'000'000));
  EXPECT_EQ(watch.next_deadline_ms(), INT64_MAX);
  watch.lost(70'000);
  watch.lost(70'400);
  EXPECT_FALSE(watch.expired(70'499)) << "a failed attempt to reconnect does not extend it";
  EXPECT_TRUE(watch.expired(70'500));
  EXPECT_TRUE(watch.start_controller_now(71'000));
}

// A step takes every rank, so nothing is wrong but that nobody is heard of.
TEST(OrphanWatch, TheTimeoutCountsFromTheNewestStep) {
  OrphanWatch watch(0, 60'000);
  watch.welcomed(60'000);
  watch.trained(9'000);
  watch.lost(10'000);
  EXPECT_FALSE(watch.expired(69'999)) << "a step from before";
  watch.trained(69'000);
  EXPECT_FALSE(watch.expired(128'999));
  EXPECT_TRUE(watch.expired(129'000)) << "it stands still since 69 s";
  EXPECT_TRUE(watch.start_controller_now(14'000)) << "a controller is wanted all the same";
}

constexpr int64_t kTimeoutMs = local_limits().orphan_ms;

TEST(OrphanWatch, SuccessorsAreStartedInTheOrderOfTheNodes) {
  OrphanWatch first(0, kTimeoutMs);
  OrphanWatch third(0, kTimeoutMs);
  first.set_plan(StartPlan::successor(0));
  third.set_plan(StartPlan::successor(2));
  const int64_t turn = StartPlan::kSuccessorAfterMs;
  EXPECT_FALSE(first.start_controller_now(turn - 1));
  EXPECT_TRUE(first.start_controller_now(turn));
  EXPECT_FALSE(third.start_controller_now(turn + 2 * StartPlan::kSuccessorStaggerMs - 1));
  EXPECT_TRUE(third.start_controller_now(turn + 2 * StartPlan::kSuccessorStaggerMs));
  // The last of a large job has its turn before the orphan timeout.
  EXPECT_LT(StartPlan::successor(100'000).after_ms, kTimeoutMs);
}

TEST(StartPlan, NoTwoNodesOfALargeJobStartASuccessorAtTheSameMoment) {
  std::set<int64_t> moments;
  for (int64_t place = 0; place < 460; ++place) {
    const int64_t after_ms = StartPlan::successor(place).after_ms;
    EXPECT_TRUE(moments.insert(after_ms).second) << "place " << place;
    EXPECT_EQ(after_ms, *moments.rbegin()) << "in their order, place " << place;
  }
  for (int64_t place = 460; place < 100'000; place += 97) {
    EXPECT_LT(StartPlan::successor(place).after_ms, 53'000);
  }
}

TEST(OrphanWatch, WithoutAnyPlanOnlyTheTimeoutCounts) {
  OrphanWatch watch(0, kTimeoutMs);
  watch.set_plan(StartPlan::never());
  EXPECT_EQ(watch.next_deadline_ms(), kTimeoutMs);
  EXPECT_FALSE(watch.start_controller_now(kTimeoutMs));
  EXPECT_TRUE(watch.expired(kTimeoutMs));
}

}  // namespace
}  // namespace hpctl::agent
