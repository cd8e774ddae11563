// SPDX-License-Identifier: Apache-2.0
// What the metrics count of a job's losses. It is in the job's status file, so that the counters go
// on under the next controller instead of beginning again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hpctl {

struct FaultCount {
  std::string kind;  // docs/metrics.md
  std::string node;  // "" = none is to blame
  uint64_t count = 0;
};

// Upper bounds of the buckets, in seconds; one more bucket is without a bound.
inline constexpr std::array<double, 11> kLossBuckets = {0.05, 0.1, 0.25, 0.5, 1,  2,
                                                        5,    10,  30,   60,  300};

struct LossHistogram {
  std::array<uint64_t, kLossBuckets.size() + 1> counts = {};
  double sum = 0;  // seconds

  void add(double seconds) {
    size_t bucket = 0;
    while (bucket < kLossBuckets.size() && seconds > kLossBuckets.at(bucket)) ++bucket;
    ++counts.at(bucket);
    sum += seconds;
  }
};

struct LossCounts {
  std::vector<FaultCount> faults;  // at most kMostFaultCounts
  LossHistogram recovery;
  LossHistogram detection;
  // How far the job's row was counted: its lost_ms, the notice_ms of its spent time, and the seq of
  // the newest fault. The next controller counts what came after, such as a fault that was not over
  // when the former controller died. -1 = not recorded, as by older releases.
  int64_t until_lost_ms = -1;
  int64_t until_notice_ms = -1;
  int64_t until_fault = -1;

  bool is_recorded() const { return !faults.empty() || until_fault >= 0; }
};
inline constexpr size_t kMostFaultCounts = 1'000;

}  // namespace hpctl
