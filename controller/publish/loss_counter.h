// SPDX-License-Identifier: Apache-2.0
// The losses of a job, counted once for the metrics: each recovery, the time until its fault was
// detected, and faults by kind and node. For one job; not for several threads at once.
#pragma once

#include <cstdint>

#include "controller/core/types.h"
#include "controller/publish/metrics.h"

namespace hpctl {

class LossCounter {
 public:
  // Earlier losses do not count: they happened under another controller, or another process of it.
  void recall(const core::Job& job);
  // The job's row after a commit. A fault counts when it is over: until then its cause may be found
  // to be another.
  void count(const core::Job& job, Metrics& metrics);

 private:
  int64_t lost_ms_ = 0;
  int64_t notice_ms_ = 0;  // of TimeSpent
  Seq fault_;              // newest
};

}  // namespace hpctl
