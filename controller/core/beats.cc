// SPDX-License-Identifier: Apache-2.0
#include "controller/core/beats.h"

#include <algorithm>

namespace hpctl::core {

namespace {

constexpr int64_t kFreshMs = 3 * kBeatMs;  // older than that, what a sentinel said is no news

// The interval of the nodes beside the sentinels.
int64_t seldom_interval_ms(size_t nodes, int64_t timeout_ms) {
  if (nodes <= kSentinelNodes) return kBeatMs;
  constexpr int64_t kLeft =
      kBeatsPerSecond - static_cast<int64_t>(kSentinelNodes) * 1'000 / kBeatMs;
  const auto others = static_cast<int64_t>(nodes - kSentinelNodes);
  return std::min(others * 1'000 / kLeft, timeout_ms / kBeatsPerTimeout);
}

}  // namespace

void BeatWatch::restart() {
  is_chosen_ = false;
  names_.clear();
  sentinels_.clear();
}

void BeatWatch::choose(const std::vector<std::string>& nodes, int64_t timeout_ms) {
  restart();
  is_chosen_ = true;
  seldom_ms_ = seldom_interval_ms(nodes.size(), timeout_ms);
  if (seldom_ms_ <= kBeatMs) return;
  for (size_t i = 0; i < kSentinelNodes; ++i) {
    names_.insert(nodes[i * nodes.size() / kSentinelNodes]);
  }
}

void BeatWatch::reported(const std::string& node, bool moved, bool wait, int64_t now_ms) {
  if (!names_.contains(node)) return;
  const auto [sentinel, is_new] = sentinels_.try_emplace(node);
  if (moved || is_new) sentinel->second.moved_ms = now_ms;
  sentinel->second.heard_ms = now_ms;
  sentinel->second.waits = wait;
}

bool BeatWatch::goes_on(int64_t now_ms) const {
  bool any_heard = false;
  bool all_wait = true;
  int64_t moved_ms = 0;
  for (const auto& [node, sentinel] : sentinels_) {
    if (now_ms - sentinel.heard_ms > kFreshMs) continue;
    any_heard = true;
    all_wait = all_wait && sentinel.waits;
    moved_ms = std::max(moved_ms, sentinel.moved_ms);
  }
  const int64_t limit_ms = is_seldom_ && all_wait ? kHurryMs : kQuietMs;
  return any_heard && now_ms - moved_ms < limit_ms;
}

std::optional<int64_t> BeatWatch::take_change(bool trains, bool is_command, int64_t now_ms) {
  const bool is_calm = trains && !names_.empty() && (is_command || goes_on(now_ms));
  if (!is_calm) hurried_ms_ = now_ms;
  const bool is_seldom = is_calm && now_ms - hurried_ms_ >= kCalmMs;
  if (is_seldom == is_seldom_) return std::nullopt;
  is_seldom_ = is_seldom;
  return is_seldom ? seldom_ms_ : kBeatMs;
}

}  // namespace hpctl::core
