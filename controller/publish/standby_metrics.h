// SPDX-License-Identifier: Apache-2.0
// Who stands by on each node, for /metrics (docs/metrics.md). Made anew at every scrape from the
// newest picture of each job, so that a series ends with the node or the job it is of.
#pragma once

#include <prometheus/collectable.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "controller/publish/status_files.h"

namespace hpctl {

class StandbyMetrics final : public prometheus::Collectable {
 public:
  // The job as it is now. Any thread.
  void show(const JobView& view);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct Shown {
    std::string name;
    std::map<std::string, StandbyView> nodes;  // those that have, or want, any
  };
  mutable std::mutex mutex_;
  std::map<uint64_t, Shown> jobs_;
};

}  // namespace hpctl
