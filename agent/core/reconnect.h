// SPDX-License-Identifier: Apache-2.0
// When to try the controller again, when to start one, and when to give the node up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/base/rng.h"

namespace hpctl::agent {

// Pauses between attempts to connect: quick at first, doubling, with jitter so that a thousand
// agents do not come back in the same millisecond.
class Backoff {
 public:
  static constexpr int64_t kFirstMs = 10;
  static constexpr int64_t kLongestMs = 1'000;

  // Between half of the present pause and the whole.
  int64_t next(Rng& rng);
  void reset() { pause_ms_ = kFirstMs; }

 private:
  int64_t pause_ms_ = kFirstMs;
};

// How long an attempt to connect may take. When all agents of a large job come at once, the
// controller's processors are busy with handshakes for longer than a first attempt. An agent that
// gives up then has cost the controller a handshake for nothing and requests another one. So an
// attempt may take as long as the handshakes of all of the job's nodes, and each twice as long as
// the one before.
class Patience {
 public:
  static constexpr int64_t kFirstMs = 2'000;
  static constexpr int64_t kLongestMs = 32'000;
  // The time for one handshake on a controller with two processors that are mostly busy. Waiting
  // too long costs nothing: the agent checks meanwhile whether another controller has the job, and
  // TCP ends an attempt to reach a machine that does not answer.
  static constexpr int64_t kHandshakeMs = 20;
  // During an attempt an agent looks so often whether another controller has the job by now: all of
  // a job's nodes look into the same directory.
  static int64_t look_every_ms(size_t nodes) {
    return std::clamp<int64_t>(2 * static_cast<int64_t>(nodes), 250, 2'000);
  }

  // For a job with this many nodes.
  int64_t next(size_t nodes) {
    const int64_t patience =
        std::clamp(kHandshakeMs * static_cast<int64_t>(nodes), patience_ms_, kLongestMs);
    patience_ms_ = std::min(kLongestMs, patience * 2);
    return patience;
  }
  void reset() { patience_ms_ = kFirstMs; }

 private:
  int64_t patience_ms_ = kFirstMs;
};

// When an agent without a controller starts one.
struct StartPlan {
  static constexpr int64_t kNeverMs = 1'000'000'000'000;
  static constexpr int64_t kSuccessorAfterMs = 3'000;  // the batch script may be quicker
  static constexpr int64_t kSuccessorStaggerMs = 500;  // per node, in the order of the job's nodes
  static constexpr int64_t kSuccessorEveryMs = 8'000;
  // This many nodes, without the controller's own, first check whether its machine answers. If it
  // does not, no batch script will be quicker.
  static constexpr int64_t kAskingFirst = 4;
  static constexpr int64_t kGoneEveryMs = 2'500;
  // After these many the rest follows closer together, because the job has waited for half a
  // minute; in rounds, so that the last has its turn before the orphan timeout of any job.
  static constexpr int64_t kMostStaggered = 60;
  static constexpr int64_t kLateStaggerMs = 50;
  static constexpr int64_t kLateTurns = 400;

  // Without any controller. The starter tries its socket first, and a lock lets only one run.
  int64_t after_ms = 100;
  int64_t every_ms = 3'000;

  static StartPlan never() { return {kNeverMs, kNeverMs}; }
  // The controller's machine does not answer; the turn among the other nodes. If it is only cut
  // off, its beat moves until it has missed its nodes: the first attempt comes too early for that.
  static StartPlan of_gone_machine(int64_t turn) {
    return {turn * kSuccessorStaggerMs, kGoneEveryMs};
  }
  // The place in the order of the job's nodes: of n nodes at most n / kLateTurns, rounded up, start
  // one at the same moment, the last after 53 s.
  static StartPlan successor(int64_t order) {
    const int64_t late = order < kMostStaggered ? 0 : (order - kMostStaggered) % kLateTurns;
    const int64_t turn = order < kMostStaggered ? order : kMostStaggered;
    return {kSuccessorAfterMs + turn * kSuccessorStaggerMs + late * kLateStaggerMs,
            kSuccessorEveryMs};
  }
};

// Times are monotonic milliseconds.
class OrphanWatch {
 public:
  // `timeout_ms`: before allows() or a Welcome.
  OrphanWatch(int64_t now_ms, int64_t timeout_ms)
      : absent_since_ms_(now_ms), timeout_ms_(timeout_ms) {}

  // How long the job's file allows us to be without a controller. A Welcome overrides it.
  void allows(int64_t timeout_ms);
  // A controller has welcomed us and says how long we may be without one.
  void welcomed(int64_t timeout_ms);
  // The stream is closed.
  void lost(int64_t now_ms);

  // A worker of this node has completed a step, which takes every rank of the job. So silent nodes
  // train on, and the timeout starts again.
  void trained(int64_t now_ms) { trained_ms_ = now_ms; }

  void set_plan(const StartPlan& plan) { plan_ = plan; }

  // True at most once in StartPlan::every_ms: start one now.
  bool start_controller_now(int64_t now_ms);
  // The job has no controller any more, and makes no progress: end everything.
  bool expired(int64_t now_ms) const;
  // When that becomes true; INT64_MAX = not while a controller is there.
  int64_t expires_at_ms() const { return present_ ? INT64_MAX : expiry_ms(); }
  // When the earlier of the two above can become true; INT64_MAX = not while things stay.
  int64_t next_deadline_ms() const;

 private:
  int64_t expiry_ms() const { return std::max(absent_since_ms_, trained_ms_) + timeout_ms_; }

  bool present_ = false;
  bool was_welcomed_ = false;
  int64_t absent_since_ms_;
  int64_t trained_ms_ = 0;
  int64_t timeout_ms_;
  int64_t next_start_ms_ = 0;  // 0 = StartPlan::after_ms after the loss
  StartPlan plan_;
};

}  // namespace hpctl::agent
