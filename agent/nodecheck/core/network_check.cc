// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/core/network_check.h"

#include <algorithm>
#include <iterator>

#include "common/base/check.h"

namespace hpctl::agent {
namespace {

constexpr size_t kPairsForAMedian = 4;
constexpr size_t kWrongPairsOfANode = 2;

int32_t sweep_rounds(int32_t nodes) {
  int32_t rounds = 0;
  while ((int64_t{1} << rounds) < nodes) ++rounds;
  return rounds;
}

// The upper one: where half of the pairs are slow, the others say what is usual. 0 = none carried.
double median_of(const std::vector<PairOutcome>& outcomes) {
  std::vector<double> rates;
  for (const PairOutcome& outcome : outcomes) {
    if (outcome.carried) rates.push_back(outcome.bytes_per_s);
  }
  if (rates.empty()) return 0;
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  return *middle;
}

std::map<int32_t, size_t> pairs_by_node(const std::set<NodePair>& pairs) {
  std::map<int32_t, size_t> count;
  for (const NodePair& pair : pairs) {
    ++count[pair.a];
    ++count[pair.b];
  }
  return count;
}

// Does the node explain its pairs better than its partners do?
bool explains(int32_t node, const std::set<NodePair>& pairs, std::map<int32_t, size_t>& count) {
  if (count[node] < kWrongPairsOfANode) return false;
  return std::all_of(pairs.begin(), pairs.end(), [&](const NodePair& pair) {
    if (pair.a != node && pair.b != node) return true;
    const size_t of_partner = count[pair.a == node ? pair.b : pair.a];
    return count[node] > of_partner ||
           (count[node] == of_partner && count[node] > kWrongPairsOfANode);
  });
}

}  // namespace

WrongNodes find_wrong_nodes(std::set<NodePair> wrong) {
  WrongNodes found;
  for (;;) {
    auto count = pairs_by_node(wrong);
    std::set<int32_t> named;
    for (const auto& [node, pairs] : std::map(count)) {
      if (explains(node, wrong, count)) named.insert(node);
    }
    if (named.empty()) break;
    found.nodes.insert(found.nodes.end(), named.begin(), named.end());
    std::erase_if(wrong, [&](const NodePair& pair) {
      return named.contains(pair.a) || named.contains(pair.b);
    });
  }
  std::sort(found.nodes.begin(), found.nodes.end());
  found.pairs.assign(wrong.begin(), wrong.end());
  return found;
}

// A suspect has one confirmation, a node at most as many links as the sweep has rounds; colouring
// edges greedily takes at most twice as many rounds as a node has edges.
int32_t most_rounds(int32_t nodes) { return 3 * sweep_rounds(nodes) + 3; }

NetworkCheck::NetworkCheck(int32_t nodes) : nodes_(nodes), sweep_(sweep_rounds(nodes)) {
  HP_CHECK(nodes >= 0);
}

std::vector<NodePair> NetworkCheck::next_round() {
  std::vector<NodePair> pairs;
  if (rounds_ < sweep_) {
    const int32_t distance = int32_t{1} << rounds_;
    for (int32_t a = 0; a < nodes_; ++a) {
      const int32_t b = a ^ distance;
      if (a < b && b < nodes_) pairs.push_back({a, b});
    }
  } else if (rounds_ < most_rounds(nodes_)) {
    pairs = next_confirmation();
  }
  if (!pairs.empty()) ++rounds_;
  return pairs;
}

void NetworkCheck::learn(const std::vector<PairOutcome>& outcomes) {
  pairs_ += outcomes.size();
  for (const PairOutcome& outcome : outcomes) {
    if (outcome.wrong) wrong_.insert(outcome.pair);
  }
  if (rounds_ <= sweep_) {
    swept_.push_back(outcomes);
    if (rounds_ == sweep_) judge_sweep();
    return;
  }
  for (const PairOutcome& outcome : outcomes) confirm(outcome);
  for (auto it = unexplained_.begin(); it != unexplained_.end();) {
    const bool is_of_link = is_sound(it->a) && is_sound(it->b);
    if (is_of_link) to_try_again_.insert(*it);
    it = is_of_link ? unexplained_.erase(it) : std::next(it);
  }
}

void NetworkCheck::confirm(const PairOutcome& outcome) {
  const NodePair& pair = outcome.pair;
  // Whatever the distance of the two: less than half of what is usual at any.
  const Trial trial = judge(outcome, least_median_);
  if (to_try_again_.erase(pair) > 0) {
    if (trial.bad) bad_links_[pair] = trial;
    return;
  }
  const bool is_between_suspects = suspects_.contains(pair.a) && suspects_.contains(pair.b);
  if (!trial.bad) {
    for (const int32_t node : {pair.a, pair.b}) {
      suspects_.erase(node);
      sound_.insert(node);
    }
  } else if (is_between_suspects) {
    trials_[pair] = trial;
    unexplained_.insert(pair);
  } else {
    const int32_t suspect = suspects_.contains(pair.a) ? pair.a : pair.b;
    suspects_.erase(suspect);
    name_node(suspect, trial);
  }
}

NetworkCheck::Trial NetworkCheck::judge(const PairOutcome& outcome, double median) {
  Trial trial;
  trial.dead = !outcome.carried;
  if (outcome.carried) trial.share = median > 0 ? outcome.bytes_per_s / median : 1;
  trial.bad = trial.dead || trial.share < kSlowShare;
  return trial;
}

void NetworkCheck::judge_sweep() {
  std::vector<PairOutcome> all;
  for (const auto& round : swept_) all.insert(all.end(), round.begin(), round.end());
  median_ = least_median_ = median_of(all);
  for (const auto& round : swept_) {
    const double of_round = round.size() >= kPairsForAMedian ? median_of(round) : median_;
    if (of_round > 0) least_median_ = std::min(least_median_, of_round);
    for (const PairOutcome& outcome : round) {
      const Trial trial = judge(outcome, of_round);
      trials_[outcome.pair] = trial;
      if (!trial.bad) sound_.insert({outcome.pair.a, outcome.pair.b});
    }
  }
  for (int32_t node = 0; node < nodes_; ++node) {
    if (!is_sound(node)) suspects_.insert(node);
  }
  for (const auto& [pair, trial] : trials_) {
    if (!trial.bad) continue;
    auto& where = is_sound(pair.a) && is_sound(pair.b) ? to_try_again_ : unexplained_;
    where.insert(pair);
  }
}

bool NetworkCheck::have_met(int32_t a, int32_t b) const {
  return trials_.contains({std::min(a, b), std::max(a, b)});
}

// A free partner for the suspect: a sound node that it has not met, one that it has met if there is
// no other, and without sound nodes another suspect that it has not met. -1 = none.
int32_t NetworkCheck::partner_for(int32_t suspect, const std::set<int32_t>& busy) const {
  const std::set<int32_t>& others = sound_.empty() ? suspects_ : sound_;
  int32_t met = -1;
  bool is_there_another = false;
  for (const int32_t other : others) {
    if (other == suspect) continue;
    const bool is_free = !busy.contains(other);
    const bool is_new = !have_met(suspect, other);
    if (is_free && is_new) return other;
    is_there_another = is_there_another || is_new;
    if (is_free && met < 0) met = other;
  }
  return is_there_another || sound_.empty() ? -1 : met;
}

// The suspects first: what they turn out to be decides which links are left to be explained.
std::vector<NodePair> NetworkCheck::next_confirmation() const {
  std::set<int32_t> busy;
  std::vector<NodePair> pairs;
  const auto take = [&](NodePair pair) {
    busy.insert({pair.a, pair.b});
    pairs.push_back(pair);
  };
  for (const int32_t suspect : suspects_) {
    if (busy.contains(suspect)) continue;
    const int32_t partner = partner_for(suspect, busy);
    if (partner >= 0) take({std::min(suspect, partner), std::max(suspect, partner)});
  }
  for (const NodePair& pair : to_try_again_) {
    if (!busy.contains(pair.a) && !busy.contains(pair.b)) take(pair);
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

void NetworkCheck::name_node(int32_t node, const Trial& trial) {
  // It was dead in the sweep, too, or it is a slow one that was late this time.
  bool dead = trial.dead;
  for (const auto& [pair, swept] : trials_) {
    if (pair.a == node || pair.b == node) dead = dead && swept.dead;
  }
  bad_nodes_[node] = {dead, true, trial.share};
}

NetworkVerdict NetworkCheck::verdict() const {
  NetworkVerdict verdict;
  verdict.median_bytes_per_s = median_;
  verdict.rounds = rounds_;
  verdict.wrong = find_wrong_nodes(wrong_);
  verdict.pairs = pairs_;
  for (const auto& [node, trial] : bad_nodes_) {
    verdict.nodes.push_back({node, trial.dead, trial.share});
  }
  for (const auto& [pair, trial] : bad_links_) {
    verdict.links.push_back({pair, trial.dead, trial.share, false});
  }
  for (const NodePair& pair : unexplained_) {  // nobody sound was left to meet its suspects
    if (bad_nodes_.contains(pair.a) || bad_nodes_.contains(pair.b)) continue;
    const Trial& trial = trials_.at(pair);
    verdict.links.push_back({pair, trial.dead, trial.share, true});
  }
  return verdict;
}

}  // namespace hpctl::agent
