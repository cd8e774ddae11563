// SPDX-License-Identifier: Apache-2.0
#include "controller/engine/launch_watch.h"

#include <algorithm>
#include <utility>

#include "common/job/duration_text.h"

namespace hpctl {

TaskLanes::Task LaunchWatch::watched(ActionId order, const core::LaunchNode& launch,
                                     TaskLanes::Task task) {
  std::shared_ptr<Lane>& lane = lanes_[{launch.job, launch.node}];
  if (!lane) lane = std::make_shared<Lane>();
  auto is_wanted = std::make_shared<std::atomic<bool>>(true);
  open_[order] = {launch, clock_.monotonic_ms(), lane, is_wanted};
  return [lane = lane, is_wanted, task = std::move(task), &clock = clock_] {
    if (!is_wanted->load()) return;
    lane->began_ms = clock.monotonic_ms();
    task();
    lane->began_ms = 0;
  };
}

void LaunchWatch::over(ActionId order) {
  const auto it = open_.find(order);
  if (it == open_.end()) return;
  it->second.is_wanted->store(false);
  open_.erase(it);
}

bool LaunchWatch::has_hung(const Lane& lane) const {
  const int64_t began_ms = lane.began_ms;
  return began_ms != 0 && clock_.monotonic_ms() - began_ms >= kSilentMs;
}

bool LaunchWatch::has_hung_lane() const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [this](const auto& lane) { return has_hung(*lane.second); });
}

std::vector<core::ActionFailed> LaunchWatch::take_held_up() {
  std::vector<core::ActionFailed> held_up;
  if (open_.empty() || !has_hung_lane()) return held_up;
  const int64_t now_ms = clock_.monotonic_ms();
  for (const auto& [order, open] : open_) {
    const bool waits = now_ms - open.ordered_ms >= kSilentMs;
    if (!waits && !has_hung(*open.lane)) continue;
    core::ActionFailed failed{
        order, open.launch.job, open.launch.node,
        "the job's directory has been silent for at least " + duration_text(kSilentMs)};
    failed.storage = true;
    held_up.push_back(std::move(failed));
  }
  for (const core::ActionFailed& failed : held_up) over(failed.action);
  return held_up;
}

}  // namespace hpctl
