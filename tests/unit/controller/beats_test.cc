// SPDX-License-Identifier: Apache-2.0
// Jobs of many nodes, most of which beat seldom while they train (controller/core/beats.h): the
// tables of the controller and a fleet of agents, in simulated time.
#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller/agents/liveness.h"
#include "controller/agents/progress.h"
#include "controller/core/beats.h"
#include "tests/unit/controller/progress_reports.h"

namespace hpctl {
namespace {

constexpr int64_t kSweepMs = 100;
constexpr int64_t kOneWayMs = 3;       // from the controller to an agent, and back
constexpr int64_t kProbeMs = 300;      // until an unanswered probe counts as such
constexpr int64_t kCollectiveMs = 20;  // each
constexpr int64_t kStepMs = 500;
constexpr int64_t kTimeoutMs = 10'000;  // recovery.heartbeat_timeout

struct Manners {
  bool beats_as_told = true;
  int32_t computes = -1;        // once nothing goes on: the rank that the others wait for
  int32_t moves_from = -1;      // from that rank on all go on though the others do not
  int32_t slow = -1;            // a rank whose passes take twice as long as the others'
  bool is_command = false;      // it tells its steps, and those only
  int32_t tellers = INT32_MAX;  // so many of its ranks do
};

class Fleet {
 public:
  Fleet(int32_t nodes, Manners manners) : manners_(manners) {
    job_ = running_job(1, 0);
    job_.spec.nodes = nodes;
    job_.spec.workers_per_node = 1;
    job_.spec.recovery.heartbeat_timeout_ms = kTimeoutMs;
    if (manners.is_command) job_.spec.train.reset();
    table_.observe(job_, 0);
    for (int32_t i = 0; i < nodes; ++i) {
      agents_.push_back({key_of(i), core::kBeatMs, (37 * i) % core::kBeatMs, 0, 0});
      plan(static_cast<size_t>(i));
      liveness_.watch(key_of(i), "life", kTimeoutMs, 0, "address");
    }
    job_.state = core::JobState::kRunning;
    table_.observe(job_, 0);
  }

  // Until then, or until a node is lost.
  void run_until(int64_t end_ms) {
    for (; now_ms_ < end_ms && lost_.empty(); ++now_ms_) {
      // Those that do nothing in this millisecond are nearly all.
      while (turns_.begin()->first <= now_ms_) live(turns_.begin()->second);
      if (now_ms_ % kSweepMs == 0) sweep();
    }
  }

  void stand_still() { still_since_ms_ = now_ms_; }
  // Its machine is gone; or its agent says nothing for a while, and its holder answers.
  void kill(size_t agent) {
    cut(agent);
    stand_still();
  }
  // Its network is gone, or its machine stands still for a while; whoever waits for it does, too.
  void cut(size_t agent) {
    be_silent_until(agent, INT64_MAX);
    dead_ = key_of(static_cast<int32_t>(agent)).name;
  }
  void heal(size_t agent) {
    be_silent_until(agent, 0);
    dead_.clear();
    still_since_ms_ = INT64_MAX;
  }
  void keep_busy(size_t agent, int64_t ms) { be_silent_until(agent, now_ms_ + ms); }

  int64_t now_ms() const { return now_ms_; }
  int64_t beats() const { return beats_; }
  int64_t orders() const { return orders_; }
  const std::vector<core::NodeLost>& lost() const { return lost_; }
  const std::vector<std::string>& stragglers() const { return stragglers_; }
  size_t seldom() const {
    return static_cast<size_t>(std::count_if(agents_.begin(), agents_.end(), [](const Agent& a) {
      return a.interval_ms > core::kBeatMs;
    }));
  }

 private:
  struct Agent {
    core::NodeKey key;
    int64_t interval_ms;
    int64_t due_ms;
    int64_t silent_until_ms;
    int64_t told_ms;  // when the order in `next_ms` arrives; 0 = none is on its way
    int64_t next_ms = 0;
    int64_t turn_ms = 0;  // when it does something next
  };
  struct Answer {
    int64_t at_ms;
    Liveness::Probe probe;
    core::HolderProbe answer;
  };

  static core::NodeKey key_of(int32_t node) { return {JobId{1}, "n" + std::to_string(node)}; }

  void plan(size_t i) {
    Agent& agent = agents_[i];
    turns_.erase({agent.turn_ms, i});
    const int64_t beats_ms = std::max({now_ms_, agent.due_ms, agent.silent_until_ms});
    agent.turn_ms = agent.told_ms == 0 ? beats_ms : std::min(beats_ms, agent.told_ms);
    turns_.insert({agent.turn_ms, i});
  }

  void be_silent_until(size_t i, int64_t ms) {
    agents_[i].silent_until_ms = ms;
    plan(i);
  }

  void live(size_t i) {
    Agent& agent = agents_[i];
    if (agent.told_ms != 0 && now_ms_ >= agent.told_ms) {
      agent.due_ms = agent.next_ms > agent.interval_ms
                         ? now_ms_ + static_cast<int64_t>(i) * 53 % agent.next_ms
                         : now_ms_;
      agent.interval_ms = agent.next_ms;
      agent.told_ms = 0;
    }
    const bool beats = now_ms_ >= agent.due_ms && now_ms_ >= agent.silent_until_ms;
    if (beats) agent.due_ms = now_ms_ + agent.interval_ms;
    plan(i);
    if (beats) beat(i);
  }

  void beat(size_t i) {
    const Agent& agent = agents_[i];
    ++beats_;
    const auto rank = static_cast<int32_t>(i);
    const bool moves = manners_.moves_from >= 0 && rank >= manners_.moves_from;
    const int64_t trained_ms = moves ? now_ms_ : std::min(now_ms_, still_since_ms_);
    RankReport report = at_step(rank, 1, static_cast<uint64_t>(1 + trained_ms / kStepMs),
                                static_cast<uint64_t>(trained_ms / kCollectiveMs));
    report.step_ns = static_cast<uint64_t>(kStepMs) * 1'000'000;
    report.figures.emplace().compute_ns = report.step_ns / (rank == manners_.slow ? 2 : 4);
    report.computing = rank == manners_.computes && now_ms_ >= still_since_ms_;
    report.open_collectives = report.computing || manners_.is_command ? 0 : 1;
    if (manners_.is_command) report.collective = 0;
    if (rank >= manners_.tellers) report.step = report.first_step_unix_ns = report.step_ns = 0;
    liveness_.heard(agent.key, "life", now_ms_);
    table_.report(job_.id, agent.key.name, {report}, now_ms_);
  }

  void sweep() {
    for (const core::BeatOrder& order : table_.take_beats(now_ms_)) obey(order);
    while (!answers_.empty() && answers_.front().at_ms <= now_ms_) {
      liveness_.probed(answers_.front().probe, answers_.front().answer);
      answers_.pop_front();
    }
    const auto findings =
        liveness_.judge(now_ms_, [this](JobId job, const std::set<std::string>& silent) {
          return table_.sight(job, silent, now_ms_);
        });
    for (const Liveness::Probe& probe : findings.probes) {
      if (probe.node.name == dead_) {
        answers_.push_back({now_ms_ + kProbeMs, probe, core::HolderProbe::kUnanswered});
      } else {
        liveness_.probed(probe, core::HolderProbe::kAnswered);
      }
    }
    lost_ = findings.lost;
    for (const core::EventBody& event : table_.take_stragglers()) {
      const auto* found = std::get_if<core::StragglerFound>(&event);
      if (found != nullptr) stragglers_.push_back(found->straggler.node);
    }
  }

  // As AgentLink does.
  void obey(const core::BeatOrder& order) {
    if (!manners_.beats_as_told) return;
    for (size_t i = 0; i < agents_.size(); ++i) {
      Agent& agent = agents_[i];
      if (order.sentinels.contains(agent.key.name)) continue;
      if (order.interval_ms > core::kBeatMs) {
        liveness_.may_beat_seldom(agent.key, "life", order.interval_ms);
      } else {
        liveness_.asked_to_beat(agent.key, "life", now_ms_);
      }
      ++orders_;
      agent.told_ms = now_ms_ + kOneWayMs;
      agent.next_ms = order.interval_ms;
      plan(i);
    }
  }

  const Manners manners_;
  core::Job job_;
  ProgressTable table_;
  Liveness liveness_;
  std::vector<Agent> agents_;
  std::set<std::pair<int64_t, size_t>> turns_;  // of all agents
  std::deque<Answer> answers_;
  std::vector<core::NodeLost> lost_;
  std::vector<std::string> stragglers_;
  std::string dead_;
  int64_t now_ms_ = 1;
  int64_t still_since_ms_ = INT64_MAX;
  int64_t beats_ = 0;
  int64_t orders_ = 0;
};

constexpr int64_t kSettledMs = 6'000;

TEST(Beats, OfManyNodesComeAsManyBeatsAsOfFortyEight) {
  for (const int32_t nodes : {150, 200, 500, 1'000}) {
    Fleet fleet(nodes, {});
    fleet.run_until(kSettledMs);
    EXPECT_EQ(fleet.seldom(), static_cast<size_t>(nodes) - core::kSentinelNodes);
    const int64_t before = fleet.beats();
    fleet.run_until(kSettledMs + 5'000);
    EXPECT_NEAR(static_cast<double>(fleet.beats() - before) / 5, core::kBeatsPerSecond, 50)
        << nodes;
    EXPECT_TRUE(fleet.lost().empty());
  }
}

TEST(Beats, OfFewNodesNobodyIsToldAnything) {
  for (const int32_t nodes : {1, 8, 48}) {
    Fleet fleet(nodes, {});
    fleet.run_until(3'000);
    fleet.stand_still();
    fleet.run_until(5'000);
    EXPECT_EQ(fleet.orders(), 0) << nodes;
  }
}

// Until the machine of a node that beats seldom, which stops training at `at_ms`, is known to be
// lost.
int64_t time_to_find(int64_t at_ms, bool beats_as_told) {
  Fleet fleet(200, {.beats_as_told = beats_as_told});
  fleet.run_until(at_ms);
  EXPECT_EQ(fleet.seldom() > 0, beats_as_told);
  fleet.kill(101);
  fleet.run_until(at_ms + 5'000);
  EXPECT_EQ(fleet.lost().size(), 1U);
  EXPECT_EQ(fleet.lost().at(0).node, "n101");
  return fleet.now_ms() - at_ms;
}

TEST(Beats, ADeadMachineIsFoundAsSoonAsIfAllBeatOften) {
  int64_t longest_told_ms = 0;
  int64_t longest_often_ms = 0;
  // Where nobody is told anything nothing settles: earlier, at the same places of steps and beats.
  constexpr int64_t kEarlierMs = 5'000;
  static_assert(kEarlierMs % kStepMs == 0 && kEarlierMs % core::kBeatMs == 0);
  for (int64_t at_ms = kSettledMs; at_ms < kSettledMs + 500; at_ms += 23) {
    longest_told_ms = std::max(longest_told_ms, time_to_find(at_ms, true));
    longest_often_ms = std::max(longest_often_ms, time_to_find(at_ms - kEarlierMs, false));
  }
  RecordProperty("longest_told_ms", static_cast<int>(longest_told_ms));
  RecordProperty("longest_often_ms", static_cast<int>(longest_often_ms));
  EXPECT_LE(longest_told_ms, longest_often_ms + 2 * kOneWayMs);
}

TEST(Beats, WhoAnswersLateOrIsBusyIsNotLost) {
  for (const int64_t busy_ms : {150, 700, 9'000}) {
    Fleet fleet(200, {});
    fleet.run_until(kSettledMs);
    fleet.keep_busy(101, busy_ms);
    fleet.stand_still();
    fleet.run_until(kSettledMs + 12'000);
    EXPECT_TRUE(fleet.lost().empty()) << busy_ms;
  }
}

TEST(Beats, WhereARankComputesTheOthersAreAskedAsHangsAreJudgedByAll) {
  for (const int32_t rank : {0, 101}) {  // of a sentinel; of a node that beats seldom
    Fleet fleet(200, {.computes = rank});
    fleet.run_until(kSettledMs);
    EXPECT_GT(fleet.seldom(), 0U);
    fleet.stand_still();
    fleet.run_until(kSettledMs + core::kQuietMs + 3 * kSweepMs);
    EXPECT_EQ(fleet.seldom(), 0U) << rank;
    EXPECT_TRUE(fleet.lost().empty()) << rank;
  }
}

TEST(Beats, NodesThatMoveWhileTheSentinelsWaitAreNotLost) {
  Fleet fleet(200, {.moves_from = 198});  // the last sentinel is n175
  fleet.run_until(kSettledMs);
  fleet.stand_still();
  fleet.run_until(kSettledMs + 30'000);
  EXPECT_TRUE(fleet.lost().empty());
}

// It is told of less often than the sentinels, whose steps must not end the rounds before.
TEST(Beats, ANodeThatBeatsSeldomIsFoundToHoldTheOthersUp) {
  Fleet fleet(400, {.slow = 201});
  fleet.run_until(kSettledMs);
  EXPECT_GT(fleet.seldom(), 0U);
  fleet.run_until(60'000);
  EXPECT_EQ(fleet.stragglers(), std::vector<std::string>{"n201"});
}

TEST(Beats, OfACommandThatTellsItsStepsOnlyAnOverdueStepIsHaste) {
  Fleet fleet(200, {.is_command = true});
  fleet.run_until(kSettledMs);
  EXPECT_GT(fleet.seldom(), 0U);
  fleet.stand_still();
  fleet.run_until(kSettledMs + core::kStepOverdueMs - kStepMs);
  EXPECT_GT(fleet.seldom(), 0U);
  fleet.run_until(kSettledMs + 20'000);
  EXPECT_EQ(fleet.seldom(), 0U);
  EXPECT_TRUE(fleet.lost().empty());
}

// Steps of 0.5 s: the next one is overdue after 2 s.
TEST(Beats, ADeadMachineOfACommandIsFoundWhenItsStepIsOverdue) {
  for (const int32_t nodes : {2, 8, 200}) {
    for (int64_t at_ms = kSettledMs; at_ms < kSettledMs + 500; at_ms += 91) {
      Fleet fleet(nodes, {.is_command = true});
      fleet.run_until(at_ms);
      fleet.kill(1);
      fleet.run_until(at_ms + 20'000);
      ASSERT_EQ(fleet.lost().size(), 1U) << nodes;
      EXPECT_EQ(fleet.lost()[0].node, "n1");
      EXPECT_THAT(fleet.lost()[0].cause, testing::HasSubstr("have completed no step for"));
      EXPECT_GT(fleet.now_ms() - at_ms, core::kStepOverdueMs - kStepMs);
      EXPECT_LT(fleet.now_ms() - at_ms, core::kStepOverdueMs + 1'000) << nodes;
    }
  }
}

TEST(Beats, ANodeOfACommandIsNotLostWhileTheOthersStepsGoOnOrForAPause) {
  for (const int32_t nodes : {2, 200}) {
    Fleet unreached(nodes, {.is_command = true});
    unreached.run_until(kSettledMs);
    unreached.cut(1);
    unreached.run_until(kSettledMs + 60'000);
    EXPECT_TRUE(unreached.lost().empty()) << nodes;

    Fleet paused(nodes, {.is_command = true});
    for (int64_t at_ms = kSettledMs; at_ms < 60'000; at_ms += 7'000) {
      paused.run_until(at_ms);
      paused.kill(1);
      paused.run_until(at_ms + core::kStepOverdueMs - kStepMs);
      paused.heal(1);
    }
    EXPECT_TRUE(paused.lost().empty()) << nodes;
  }
}

TEST(Beats, OfACommandWhoseOneTellerIsSilentNothingIsKnown) {
  Fleet fleet(2, {.is_command = true, .tellers = 1});
  fleet.run_until(kSettledMs);
  fleet.kill(0);
  fleet.run_until(kSettledMs + kTimeoutMs - 500);
  EXPECT_TRUE(fleet.lost().empty());
  Fleet other(2, {.is_command = true, .tellers = 1});
  other.run_until(kSettledMs);
  other.kill(1);
  other.run_until(kSettledMs + core::kStepOverdueMs + 1'000);
  EXPECT_EQ(other.lost().size(), 1U) << "rank 0 waits for it";
}

}  // namespace
}  // namespace hpctl
