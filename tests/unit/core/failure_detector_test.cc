// SPDX-License-Identifier: Apache-2.0
// The table of controller/core/failure_detector.h, row by row.
#include "controller/core/failure_detector.h"

#include <gtest/gtest.h>

namespace hpctl::core {
namespace {

using Kind = FailureVerdict::Kind;

constexpr NodeObservation kWaitedFor = {.silent_ms = kSilentMs,
                                        .timeout_ms = 10'000,
                                        .training = TrainingSight::kSeen,
                                        .still_ms = kStillMs,
                                        .peers_wait = true,
                                        .peers_broke = false,
                                        .probe = HolderProbe::kUnanswered};

template <typename Change>
FailureVerdict judge(Change change) {
  NodeObservation node = kWaitedFor;
  change(node);
  return judge_node(node);
}

struct Row {
  const char* what;
  void (*change)(NodeObservation& node);
  Kind kind;
};

constexpr HolderProbe kProbes[] = {HolderProbe::kImpossible, HolderProbe::kNotAsked,
                                   HolderProbe::kAsked,      HolderProbe::kAnswered,
                                   HolderProbe::kUnanswered, HolderProbe::kRefused};

const Row kRows[] = {
    {"the others wait, no answer", [](NodeObservation&) {}, Kind::kLost},
    {"too early to say", [](NodeObservation& n) { n.silent_ms = kSilentMs - 1; }, Kind::kNothing},
    {"asked early",
     [](NodeObservation& n) {
       n.silent_ms = kProbeAfterMs;
       n.probe = HolderProbe::kNotAsked;
     },
     Kind::kProbe},
    {"heard a moment ago",
     [](NodeObservation& n) {
       n.silent_ms = kProbeAfterMs - 1;
       n.probe = HolderProbe::kNotAsked;
     },
     Kind::kNothing},
    {"the answer is awaited", [](NodeObservation& n) { n.probe = HolderProbe::kAsked; },
     Kind::kNothing},
    {"it is only busy", [](NodeObservation& n) { n.probe = HolderProbe::kAnswered; },
     Kind::kNothing},
    {"the holder is gone",
     [](NodeObservation& n) {
       n.silent_ms = kProbeAfterMs;
       n.probe = HolderProbe::kRefused;
     },
     Kind::kLost},
    {"waited for, but cannot be probed",
     [](NodeObservation& n) { n.probe = HolderProbe::kImpossible; }, Kind::kNothing},
    {"a rank elsewhere computes", [](NodeObservation& n) { n.peers_wait = false; }, Kind::kNothing},
    {"a rank elsewhere has just moved", [](NodeObservation& n) { n.still_ms = kStillMs - 1; },
     Kind::kNothing},
    {"peers lost connections while the others compute",
     [](NodeObservation& n) {
       n.peers_wait = false;
       n.peers_broke = true;
     },
     Kind::kLost},
    {"peers of a command lost connections",
     [](NodeObservation& n) {
       n.training = TrainingSight::kUnseen;
       n.peers_broke = true;
     },
     Kind::kLost},
    {"peers lost connections, and it cannot be probed",
     [](NodeObservation& n) {
       n.peers_broke = true;
       n.probe = HolderProbe::kImpossible;
     },
     Kind::kLost},
    {"peers lost connections because a worker there died",
     [](NodeObservation& n) {
       n.peers_broke = true;
       n.probe = HolderProbe::kAnswered;
     },
     Kind::kNothing},
    {"a recovery waits", [](NodeObservation& n) { n.training = TrainingSight::kStopped; },
     Kind::kLost},
    {"a command, no answer", [](NodeObservation& n) { n.training = TrainingSight::kUnseen; },
     Kind::kNothing},
    {"a command that steps, the holder is gone",
     [](NodeObservation& n) {
       n.is_command = true;
       n.probe = HolderProbe::kRefused;
     },
     Kind::kLost},
    {"a command, the holder is gone",
     [](NodeObservation& n) {
       n.training = TrainingSight::kUnseen;
       n.probe = HolderProbe::kRefused;
     },
     Kind::kLost},
};

TEST(Silence, OfACommandAnOverdueStepIsAStandstill) {
  NodeObservation node = kWaitedFor;
  node.is_command = true;
  node.peers_wait = false;
  node.longest_pause_ms = 1'000;
  const auto after = [&](int64_t silent_ms, int64_t still_ms) {
    node.silent_ms = silent_ms;
    node.still_ms = still_ms;
    return judge_node(node);
  };
  EXPECT_EQ(after(3'001, 3'001).kind, Kind::kLost);
  EXPECT_EQ(node.longest_pause_ms * kStepOverdueTimes, 3'000);
  EXPECT_EQ(
      after(3'001, 3'500).reason,
      "no heartbeat for 3001 ms while the other ranks have completed no step for 3500 ms, and "
      "its holder does not answer");
  EXPECT_EQ(after(3'000, 9'000).kind, Kind::kNothing) << "it was heard of";
  EXPECT_EQ(after(9'000, 3'000).kind, Kind::kNothing) << "steps go on";
  node.longest_pause_ms = 1;
  EXPECT_EQ(after(kStepOverdueMs, kStepOverdueMs).kind, Kind::kNothing);
  EXPECT_EQ(after(kStepOverdueMs + 1, kStepOverdueMs + 1).kind, Kind::kLost);
  node.longest_pause_ms = 0;
  EXPECT_EQ(after(9'000, 9'000).kind, Kind::kNothing) << "what is usual is not known";
  node.longest_pause_ms = 1;
  for (const HolderProbe probe :
       {HolderProbe::kAnswered, HolderProbe::kAsked, HolderProbe::kImpossible}) {
    node.probe = probe;
    EXPECT_EQ(judge_node(node).kind, Kind::kNothing);
  }
}

// Of a node that nothing else is known of. Whoever holds it may say so first.
Kind after_the_timeout(HolderProbe probe) {
  switch (probe) {
    case HolderProbe::kNotAsked:
      return Kind::kProbe;
    case HolderProbe::kAsked:
    case HolderProbe::kAnswered:
      return Kind::kNothing;
    default:
      return Kind::kLost;
  }
}

TEST(Silence, EachRowOfTheTable) {
  for (const Row& row : kRows) {
    EXPECT_EQ(judge(row.change).kind, row.kind) << row.what;
  }
}

TEST(Silence, WhereTrainingGoesOnANodeWithRanksMayBeSilent) {
  for (const HolderProbe probe : kProbes) {
    NodeObservation node = kWaitedFor;
    node.peers_wait = false;
    node.probe = probe;
    node.silent_ms = 3'600'000;
    node.still_ms = node.trained_ms = node.timeout_ms;
    EXPECT_EQ(judge_node(node).kind, Kind::kNothing);
    node.still_ms = ++node.trained_ms;
    EXPECT_EQ(judge_node(node).kind, Kind::kLost);
  }
}

TEST(Silence, WhereTrainingGoesOnANodeWithoutRanksHasTheTimeout) {
  for (const HolderProbe probe : kProbes) {
    NodeObservation node = kWaitedFor;
    node.peers_wait = false;
    node.still_ms = 0;
    node.probe = probe;
    node.silent_ms = node.timeout_ms;
    EXPECT_EQ(judge_node(node).kind, Kind::kNothing);
    ++node.silent_ms;
    EXPECT_EQ(judge_node(node).kind, after_the_timeout(probe));
    node.silent_ms = kAnsweredTimes * node.timeout_ms + 1;
    EXPECT_EQ(judge_node(node).kind, Kind::kLost);
  }
}

// They wait for any rank that is slow in a step, and for whoever writes.
TEST(Silence, PeersThatWaitForAMomentAreNoReasonOnceANodeTrainsUnheard) {
  NodeObservation node = kWaitedFor;
  node.still_ms = node.trained_ms = 2 * kStillMs;
  node.silent_ms = node.timeout_ms + node.trained_ms;
  EXPECT_EQ(judge_node(node).kind, Kind::kLost) << "it may have died while the others moved";
  ++node.silent_ms;
  for (const HolderProbe probe :
       {HolderProbe::kUnanswered, HolderProbe::kAnswered, HolderProbe::kImpossible}) {
    node.probe = probe;
    EXPECT_EQ(judge_node(node).kind, Kind::kNothing);
  }
  node.probe = HolderProbe::kNotAsked;
  EXPECT_EQ(judge_node(node).kind, Kind::kProbe);
  node.probe = HolderProbe::kRefused;
  EXPECT_EQ(judge_node(node).kind, Kind::kLost) << "nobody holds it";
}

TEST(Silence, TheTimeoutCountsWhateverElseIsKnownOfANodeNotSeenToTrain) {
  for (const HolderProbe probe : kProbes) {
    for (const auto training :
         {TrainingSight::kUnseen, TrainingSight::kSeen, TrainingSight::kStopped}) {
      NodeObservation node = kWaitedFor;
      node.training = training;
      node.probe = probe;
      node.timeout_ms = 500;  // below the six beats
      node.silent_ms = 501;
      EXPECT_EQ(judge_node(node).kind, after_the_timeout(probe));
      node.silent_ms = 1'501;
      EXPECT_EQ(judge_node(node).kind, Kind::kLost);
    }
  }
}

// One that beats seldom while training visibly goes on, and is asked when it does not.
TEST(Silence, CountsOfANodeThatBeatsSeldomFromWhereItWasAsked) {
  NodeObservation node = kWaitedFor;
  node.silent_ms = 2'400;
  node.unasked_ms = node.silent_ms;
  for (const HolderProbe probe : kProbes) {
    node.probe = probe;
    node.peers_broke = true;
    EXPECT_EQ(judge_node(node).kind, Kind::kNothing) << "it was not asked";
  }
  node.peers_broke = false;
  node.was_asked = true;
  const auto after = [&](int64_t asked_ms, HolderProbe probe) {
    node.silent_ms = node.unasked_ms + asked_ms;
    node.probe = probe;
    return judge_node(node).kind;
  };
  EXPECT_EQ(after(kProbeAskedAfterMs - 1, HolderProbe::kNotAsked), Kind::kNothing);
  EXPECT_EQ(after(kProbeAskedAfterMs, HolderProbe::kNotAsked), Kind::kProbe);
  EXPECT_EQ(after(kProbeAskedAfterMs, HolderProbe::kRefused), Kind::kLost);
  EXPECT_EQ(after(kSilentAskedMs - 1, HolderProbe::kUnanswered), Kind::kNothing);
  EXPECT_EQ(after(kSilentAskedMs, HolderProbe::kUnanswered), Kind::kLost);
  EXPECT_EQ(judge_node(node).reason,
            "no heartbeat for 2800 ms, of them 400 ms after the controller's question, while the "
            "other ranks "
            "have waited in a collective for 300 ms, and its holder does not answer");
  EXPECT_EQ(after(kSilentAskedMs, HolderProbe::kAnswered), Kind::kNothing);
  node.still_ms = kStillMs - 1;
  EXPECT_EQ(after(kSilentAskedMs, HolderProbe::kNotAsked), Kind::kProbe) << "in good time";
  EXPECT_EQ(after(kSilentAskedMs, HolderProbe::kUnanswered), Kind::kNothing);
  EXPECT_EQ(after(kSilentAskedMs, HolderProbe::kRefused), Kind::kNothing);
  node.peers_broke = true;
  EXPECT_EQ(after(kSilentMs - 1, HolderProbe::kImpossible), Kind::kNothing);
  EXPECT_EQ(after(kSilentMs, HolderProbe::kImpossible), Kind::kLost) << "silence is all there is";
}

TEST(Silence, TheReasonSaysWhatWasSeen) {
  EXPECT_EQ(judge([](NodeObservation& n) { n.still_ms = 700; }).reason,
            "no heartbeat for 600 ms while the other ranks have waited in a collective for 700 ms, "
            "and its holder does not answer");
  EXPECT_EQ(judge([](NodeObservation& n) { n.probe = HolderProbe::kRefused; }).reason,
            "no heartbeat for 600 ms and its holder is gone: a connection to it is refused");
  EXPECT_EQ(judge([](NodeObservation& n) {
              n.peers_broke = true;
              n.probe = HolderProbe::kImpossible;
            }).reason,
            "no heartbeat for 600 ms while its peers lost their connections (its holder cannot be "
            "probed)");
  EXPECT_EQ(judge([](NodeObservation& n) { n.training = TrainingSight::kStopped; }).reason,
            "no heartbeat for 600 ms while the recovery waits for it, and its holder does not "
            "answer");
  NodeObservation late = kWaitedFor;
  late.silent_ms = 30'001;
  EXPECT_EQ(judge_node(late).reason, "no heartbeat for 30001 ms (limit 10000 ms)");
  late.probe = HolderProbe::kAnswered;
  EXPECT_EQ(judge_node(late).reason,
            "no heartbeat for 30001 ms (limit 30000 ms, as its holder answers)");
  late.trained_ms = 10'001;
  EXPECT_EQ(judge_node(late).reason,
            "no heartbeat for 30001 ms and no rank has moved for 10001 ms (limit 30000 ms, as its "
            "holder answers)");
}

}  // namespace
}  // namespace hpctl::core
