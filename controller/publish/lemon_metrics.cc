// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/lemon_metrics.h"

#include <utility>

namespace hpctl {

void LemonMetrics::show(const JobView& view, const std::vector<LemonScore>& scores) {
  Shown shown{view.name, {}};
  if (!view.ended_at.is_known() && !scores.empty()) {
    for (const NodeView& node : view.nodes) {
      const LemonScore* score = find_lemon_score(scores, node.name, node.instance_id);
      if (score != nullptr) shown.nodes.emplace(node.name, score->score);
    }
  }
  const std::lock_guard lock(mutex_);
  std::swap(jobs_[view.job], shown);  // what was shown goes after the lock
}

void LemonMetrics::add_to(MetricFamilies& out) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, shown] : jobs_) {
    for (const auto& [node, score] : shown.nodes) {
      out.gauge("hpctl_node_lemon_score", "Evidence against a node in jobs, fading with a week",
                {{"job", std::to_string(id)}, {"name", shown.name}, {"node", node}}, score);
    }
  }
}

}  // namespace hpctl
