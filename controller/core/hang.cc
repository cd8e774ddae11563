// SPDX-License-Identifier: Apache-2.0
#include "controller/core/hang.h"

#include <algorithm>

#include "controller/core/plan.h"

namespace hpctl::core {

namespace {

using Suspects = std::vector<const RankSight*>;

template <typename Predicate>
Suspects select(const std::vector<RankSight>& ranks, Predicate predicate) {
  Suspects found;
  for (const RankSight& rank : ranks) {
    if (predicate(rank)) found.push_back(&rank);
  }
  return found;
}

bool is_stopped(const RankSight& rank) {
  return rank.process_state == "T" || rank.process_state == "t";
}

// "rank 2 (pid 102)", "ranks 1, 3"
std::string names_of(const Suspects& suspects) {
  if (suspects.size() == 1) {
    return "rank " + to_string(suspects[0]->rank) + " (pid " + std::to_string(suspects[0]->pid) +
           ")";
  }
  std::vector<std::string> names;
  for (const RankSight* rank : suspects) names.push_back(to_string(rank->rank));
  return "ranks " + join_some(names);
}

bool are_on_one_node(const Suspects& suspects) {
  return std::all_of(suspects.begin(), suspects.end(),
                     [&](const RankSight* rank) { return rank->node == suspects[0]->node; });
}

HangVerdict accuse(const Suspects& suspects, const std::string& what) {
  const RankSight& first = *suspects[0];
  HangVerdict verdict;
  verdict.evidence = names_of(suspects) + " " + what + " (phase " + first.phase + ")";
  if (are_on_one_node(suspects)) {
    verdict.node = first.node;
    verdict.rank = first.rank;
  } else {
    verdict.evidence += "; they are on several nodes, and none of these is blamed";
  }
  return verdict;
}

}  // namespace

HangVerdict judge_hang(const std::vector<RankSight>& ranks) {
  const auto [fewest, most] = std::minmax_element(
      ranks.begin(), ranks.end(),
      [](const RankSight& a, const RankSight& b) { return a.collective < b.collective; });
  const std::string began = std::to_string(fewest->collective);
  if (const auto stopped = select(ranks, is_stopped); !stopped.empty()) {
    return accuse(stopped, std::string(stopped.size() == 1 ? "is" : "are") +
                               " stopped (state T) and began collective " +
                               std::to_string(stopped[0]->collective));
  }
  if (fewest->collective < most->collective) {
    const auto behind = select(ranks, [first = fewest->collective](const RankSight& rank) {
      return rank.collective == first;
    });
    return accuse(behind, "began collective " + began + ", others are waiting in " +
                              std::to_string(most->collective));
  }
  const auto in_kernel = select(ranks, [](const RankSight& r) { return r.process_state == "D"; });
  if (!in_kernel.empty() && in_kernel.size() < ranks.size()) {
    return accuse(in_kernel, std::string(in_kernel.size() == 1 ? "waits" : "wait") +
                                 " uninterruptibly in the kernel (state D); all ranks began "
                                 "collective " +
                                 began);
  }
  HangVerdict nobody;
  nobody.evidence = ranks.size() == 1 ? "its only rank began collective " + began
                                      : "all ranks began collective " + began +
                                            ": nothing tells them apart, nobody is blamed";
  if (!in_kernel.empty()) nobody.evidence += "; all wait uninterruptibly in the kernel (state D)";
  nobody.evidence += " (phase " + ranks[0].phase + ")";
  return nobody;
}

}  // namespace hpctl::core
