// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/standby_metrics.h"

#include <utility>

#include "controller/publish/metric_families.h"

namespace hpctl {

void StandbyMetrics::show(const JobView& view) {
  Shown shown{view.name, {}};
  for (const NodeView& node : view.nodes) {
    if (node.standbys) shown.nodes.emplace(node.name, *node.standbys);
  }
  const std::lock_guard lock(mutex_);
  std::swap(jobs_[view.job], shown);  // what was shown goes after the lock
}

std::vector<prometheus::MetricFamily> StandbyMetrics::Collect() const {
  constexpr auto kHelp = "Processes of a node that wait for a part, by whether they can take it";
  MetricFamilies out;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, shown] : jobs_) {
    for (const auto& [name, standbys] : shown.nodes) {
      const MetricLabels node = {{"job", std::to_string(id)}, {"name", shown.name}, {"node", name}};
      out.gauge("hpctl_standbys", kHelp, with(node, "state", "ready"), standbys.ready);
      out.gauge("hpctl_standbys", kHelp, with(node, "state", "loading"), standbys.loading);
      out.gauge("hpctl_standbys_wanted", "Processes of a node that there are to be, waiting", node,
                standbys.wanted);
      if (standbys.memory_bytes == 0) continue;
      out.gauge("hpctl_standbys_memory_bytes", "Of those of a node that are ready", node,
                static_cast<double>(standbys.memory_bytes));
    }
  }
  return out.take();
}

}  // namespace hpctl
