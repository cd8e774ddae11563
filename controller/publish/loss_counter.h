// SPDX-License-Identifier: Apache-2.0
// The losses of a job, counted once for the metrics: each recovery, the time until its fault was
// detected, and faults by kind and node. For one job; not for several threads at once.
#pragma once

#include <cstdint>
#include <utility>

#include "controller/core/types.h"
#include "controller/publish/loss_counts.h"
#include "controller/publish/metrics.h"

namespace hpctl {

class LossCounter {
 public:
  // Earlier losses do not count again: they happened under another controller, or another process
  // of it, which has counted them.
  void recall(const core::Job& job);
  // What these have counted, after recall() and before the first count(). Of the job's row, what
  // they have not counted counts again.
  void go_on_from(LossCounts counts);
  // The job's row after a commit. A fault counts when it is over: until then its cause may be found
  // to be another. `metrics` may be null.
  void count(const core::Job& job, Metrics* metrics);
  const LossCounts& counts() const { return counts_; }

 private:
  void count_fault(const core::Fault& fault);
  void note_how_far();

  LossCounts counts_;
  bool is_new_ = true;  // the metrics have not been given what was counted before
  int64_t lost_ms_ = 0;
  int64_t notice_ms_ = 0;  // of TimeSpent
  Seq fault_;              // newest
};

}  // namespace hpctl
