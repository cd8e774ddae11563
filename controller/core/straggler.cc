// SPDX-License-Identifier: Apache-2.0
#include "controller/core/straggler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "common/base/check.h"
#include "controller/core/plan.h"

namespace hpctl::core {

namespace {

constexpr size_t kMiddle = kRoundSteps / 2;
constexpr size_t kQuarter = kRoundSteps / 4;  // of the steps are shorter, or as many longer
// For medians of this many normally distributed steps: their median distance from the usual one, by
// the distance of a long step.
constexpr double kSpreadOfSteps = 0.7;
constexpr double kMsPerNs = 1e-6;

// One of `parts` of the values are below it, or fewer. Reorders them. Precondition: there are any.
double quantile(std::vector<double>& values, size_t parts) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / parts);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double lower_median(std::vector<double>& values) { return quantile(values, 2); }

// With one decimal.
std::string number(double value) {
  const int64_t tenths = std::llround(value * 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

std::string ranks_named(const std::vector<int32_t>& ranks) {
  if (ranks.size() == 1) return "rank " + std::to_string(ranks[0]);
  std::vector<std::string> names;
  for (const int32_t rank : ranks) names.push_back(std::to_string(rank));
  return "ranks " + join_some(names);
}

}  // namespace

// The times of the ranks that have reported enough steps.
struct StragglerWatch::Round {
  struct Pace {
    int32_t rank = 0;
    double median_ns = 0;
    double short_ns = 0;  // three quarters of its steps took at least that
  };
  std::vector<Pace> ranks;
  double typical_ns = 0;
  double spread_ns = 0;  // how far a rank is from the typical one by luck alone
  double long_ns = 0;    // three quarters of a typical rank's steps took at most that
  double worth_ns = 0;

  bool is_slow(const Pace& pace) const;
};

struct StragglerWatch::NodePace {
  size_t ranks = 0;
  std::vector<int32_t> slow;  // long enough to be named, ascending
  bool is_slow = false;       // any rank, in this round
  bool is_near = true;        // all ranks, to the typical one
  double slowest_ns = 0;
};

StragglerWatch::StragglerWatch(Generation generation, uint64_t start_step, int32_t world_size,
                               const std::vector<Straggler>& known)
    : generation_(generation),
      start_step_(start_step),
      ranks_(static_cast<size_t>(std::max(world_size, 0))) {
  for (const Straggler& straggler : known) {
    if (straggler.generation == generation) named_[straggler.node] = 0;
  }
}

void StragglerWatch::add(const RankStep& seen, const std::string& node) {
  HP_CHECK(seen.rank.value >= 0 && static_cast<size_t>(seen.rank.value) < ranks_.size());
  RankRow& row = ranks_[static_cast<size_t>(seen.rank.value)];
  if (seen.compute_ns == 0 || seen.step == row.step) return;
  row.step = seen.step;
  if (seen.step <= start_step_ + kWarmUpSteps) return;
  if (row.node != node) row.node = node;
  row.step_ns = row.told == 0 ? seen.step_ns : std::min(row.step_ns, seen.step_ns);
  row.taken_ns[row.told % kRoundSteps] = seen.compute_ns;
  if (++row.told == kRoundSteps) ++full_;
  most_told_ = std::max(most_told_, row.told);
}

bool StragglerWatch::is_round_over() const {
  return ranks_.size() >= kFewestRanks && (full_ == ranks_.size() || most_told_ >= 2 * kRoundSteps);
}

StragglerWatch::Round StragglerWatch::measure() const {
  Round round;
  std::vector<double> medians;
  std::vector<double> longs;
  std::vector<double> steps;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].is_full()) continue;
    auto taken = ranks_[rank].taken_ns;
    std::sort(taken.begin(), taken.end());
    const auto median = static_cast<double>(taken[kMiddle]);
    round.ranks.push_back(
        {static_cast<int32_t>(rank), median, static_cast<double>(taken[kQuarter])});
    medians.push_back(median);
    longs.push_back(static_cast<double>(taken[kRoundSteps - 1 - kQuarter]));
    steps.push_back(static_cast<double>(ranks_[rank].step_ns));
  }
  if (medians.size() < kFewestRanks) return {};
  round.typical_ns = lower_median(medians);
  round.long_ns = lower_median(longs);
  round.worth_ns = kWorthShare * lower_median(steps);
  round.spread_ns = std::max(round.typical_ns - quantile(medians, 4),
                             kSpreadOfSteps * (round.long_ns - round.typical_ns));
  return round;
}

bool StragglerWatch::Round::is_slow(const Pace& pace) const {
  const double longer_ns = pace.median_ns - typical_ns;
  return pace.median_ns >= kSlowRatio * typical_ns && longer_ns >= kSlowSpreads * spread_ns &&
         pace.short_ns > long_ns && longer_ns >= worth_ns;
}

StragglerNews StragglerWatch::judge() {
  const Round round = measure();
  StragglerNews news;
  if (!round.ranks.empty()) {
    std::map<std::string, NodePace> nodes = count_rounds(round);
    news.found = find_new(round, nodes);
    news.over = find_over(nodes);
  }
  for (RankRow& row : ranks_) row.told = 0;
  full_ = most_told_ = 0;
  return news;
}

std::map<std::string, StragglerWatch::NodePace> StragglerWatch::count_rounds(const Round& round) {
  std::map<std::string, NodePace> nodes;
  for (const Round::Pace& pace : round.ranks) {
    RankRow& row = ranks_[static_cast<size_t>(pace.rank)];
    row.slow_rounds = round.is_slow(pace) ? row.slow_rounds + 1 : 0;
    NodePace& node = nodes[row.node];
    node.ranks += 1;
    node.slowest_ns = std::max(node.slowest_ns, pace.median_ns);
    node.is_near = node.is_near && pace.median_ns < kOverRatio * round.typical_ns;
    if (row.slow_rounds >= kSlowRounds) node.slow.push_back(pace.rank);
    node.is_slow = node.is_slow || row.slow_rounds > 0;
  }
  return nodes;
}

std::vector<Straggler> StragglerWatch::find_new(const Round& round,
                                                const std::map<std::string, NodePace>& nodes) {
  const auto slow = static_cast<size_t>(std::count_if(
      nodes.begin(), nodes.end(), [](const auto& node) { return node.second.is_slow; }));
  if (slow > std::max<size_t>(1, nodes.size() / 4)) return {};
  using Named = std::pair<const std::string, NodePace>;
  std::vector<const Named*> found;
  for (const Named& node : nodes) {
    if (!node.second.slow.empty() && !named_.contains(node.first)) found.push_back(&node);
  }
  std::stable_sort(found.begin(), found.end(), [](const Named* a, const Named* b) {
    return a->second.slowest_ns > b->second.slowest_ns;
  });
  const size_t room = kMostStragglers - std::min(kMostStragglers, named_.size());
  if (found.size() > room) found.resize(room);
  std::vector<Straggler> stragglers;
  for (const Named* node : found) {
    named_[node->first] = 0;
    stragglers.push_back(tell(round, node->first, node->second));
  }
  return stragglers;
}

Straggler StragglerWatch::tell(const Round& round, const std::string& name,
                               const NodePace& node) const {
  const double slowdown = node.slowest_ns / round.typical_ns;
  const bool one = node.slow.size() == 1;
  const bool all = !one && node.slow.size() == node.ranks;
  uint64_t step = 0;
  for (const int32_t rank : node.slow) {
    step = std::max(step, ranks_[static_cast<size_t>(rank)].step);
  }
  Straggler straggler;
  straggler.node = name;
  straggler.rank = one ? node.slow[0] : -1;
  straggler.slowdown = slowdown;
  straggler.generation = generation_;
  straggler.evidence = (all ? "all its ranks (" : "") + ranks_named(node.slow) + (all ? ")" : "") +
                       (one ? " takes " : " take ") + number(slowdown) +
                       " times as long as the others for the passes of a step: " +
                       number(node.slowest_ns * kMsPerNs) + " ms, usual are " +
                       number(round.typical_ns * kMsPerNs) + " ms; so in " +
                       std::to_string(kSlowRounds) + " rounds of " + std::to_string(kRoundSteps) +
                       " steps up to step " + std::to_string(step);
  return straggler;
}

std::vector<std::string> StragglerWatch::find_over(const std::map<std::string, NodePace>& nodes) {
  std::vector<std::string> over;
  for (auto it = named_.begin(); it != named_.end();) {
    const auto node = nodes.find(it->first);
    if (node != nodes.end()) it->second = node->second.is_near ? it->second + 1 : 0;
    if (it->second < kSlowRounds) {
      ++it;
      continue;
    }
    over.push_back(it->first);
    it = named_.erase(it);
  }
  return over;
}

}  // namespace hpctl::core
