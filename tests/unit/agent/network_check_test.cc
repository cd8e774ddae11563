// SPDX-License-Identifier: Apache-2.0
// The planner and judge of the network check, on simulated clusters.
#include "agent/nodecheck/core/network_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <set>
#include <sstream>

namespace hpctl::agent {
namespace {

// A cluster of so many nodes, in racks; what is bad is listed.
struct Cluster {
  int32_t nodes = 16;
  int32_t rack = 1'000'000;             // nodes of one
  double between_racks = 1;             // share of the rate within one
  std::map<int32_t, double> bad_nodes;  // share of the usual rate; 0 = dead
  std::map<NodePair, double> bad_links;
  std::map<std::pair<int32_t, NodePair>, double> hiccups;  // in that round only
  std::mt19937 random = std::mt19937(7);

  PairOutcome exchange(int32_t round, const NodePair& pair) {
    double rate = 1e9 * std::uniform_real_distribution<>(0.8, 1.2)(random);
    if (pair.a / rack != pair.b / rack) rate *= between_racks;
    double share = 1;
    for (const int32_t node : {pair.a, pair.b}) {
      if (bad_nodes.contains(node)) share = std::min(share, bad_nodes.at(node));
    }
    if (bad_links.contains(pair)) share = std::min(share, bad_links.at(pair));
    if (hiccups.contains({round, pair})) share = std::min(share, hiccups.at({round, pair}));
    return {pair, share > 0, rate * share};
  }

  NetworkVerdict check() {
    NetworkCheck check(nodes);
    for (int32_t round = 0;; ++round) {
      EXPECT_LE(round, most_rounds(nodes));
      const auto pairs = check.next_round();
      if (pairs.empty()) return check.verdict();
      std::set<int32_t> seen;
      std::vector<PairOutcome> outcomes;
      for (const NodePair& pair : pairs) {
        EXPECT_LT(pair.a, pair.b);
        EXPECT_LT(pair.b, nodes);
        EXPECT_TRUE(seen.insert(pair.a).second && seen.insert(pair.b).second) << "not disjoint";
        outcomes.push_back(exchange(round, pair));
      }
      check.learn(outcomes);
    }
  }
};

std::string named(const WrongNodes& wrong) {
  std::ostringstream text;
  for (const int32_t node : wrong.nodes) text << "n" << node << " ";
  for (const NodePair& pair : wrong.pairs) text << pair.a << "-" << pair.b << "? ";
  return text.str();
}

// "n3 dead, n5 slow, 1-2 slow"
std::string named(const NetworkVerdict& verdict) {
  std::ostringstream text;
  const char* between = "";
  for (const auto& node : verdict.nodes) {
    text << between << "n" << node.node << (node.dead ? " dead" : " slow");
    between = ", ";
  }
  for (const auto& link : verdict.links) {
    text << between << link.pair.a << "-" << link.pair.b << (link.dead ? " dead" : " slow")
         << (link.blames_nobody ? "?" : "");
    between = ", ";
  }
  return text.str();
}

TEST(NetworkCheck, AHealthyClusterNamesNobody) {
  for (const int32_t nodes : {0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 100, 1'000, 4'096}) {
    Cluster cluster;
    cluster.nodes = nodes;
    const NetworkVerdict verdict = cluster.check();
    EXPECT_EQ(named(verdict), "") << nodes;
    EXPECT_LE(verdict.rounds, 12) << nodes;
  }
}

TEST(NetworkCheck, ASlowNodeAndADeadNode) {
  Cluster cluster;
  cluster.bad_nodes = {{5, 0.1}, {11, 0}};
  const NetworkVerdict verdict = cluster.check();
  EXPECT_EQ(named(verdict), "n5 slow, n11 dead");
  EXPECT_EQ(verdict.rounds, 5);
  EXPECT_NEAR(verdict.nodes[0].share, 0.1, 0.05);
}

TEST(NetworkCheck, ASlowLinkAndADeadLinkOfSoundNodes) {
  Cluster cluster;
  cluster.bad_links = {{{2, 3}, 0.2}, {{6, 14}, 0}};
  EXPECT_EQ(named(cluster.check()), "2-3 slow, 6-14 dead");
  cluster.bad_links = {{{1, 6}, 0}};
  EXPECT_EQ(named(cluster.check()), "") << "no pair of the sweep: not seen, and nobody is blamed";
}

TEST(NetworkCheck, TwoBadNodesThatMetEachOther) {
  Cluster cluster;
  cluster.bad_nodes = {{4, 0}, {5, 0.2}};
  EXPECT_EQ(named(cluster.check()), "n4 dead, n5 slow");
  cluster.bad_links = {{{8, 9}, 0}};
  EXPECT_EQ(named(cluster.check()), "n4 dead, n5 slow, 8-9 dead");
}

TEST(NetworkCheck, AHiccupNamesNobody) {
  Cluster cluster;
  cluster.hiccups = {{{0, {2, 3}}, 0}, {{2, {1, 5}}, 0.1}};
  EXPECT_EQ(named(cluster.check()), "");
}

TEST(NetworkCheck, SmallClustersAreToldWhatCanBeTold) {
  Cluster cluster;
  cluster.nodes = 2;
  cluster.bad_links = {{{0, 1}, 0}};
  EXPECT_EQ(named(cluster.check()), "0-1 dead?");
  cluster = {};
  cluster.nodes = 3;
  cluster.bad_nodes = {{2, 0}};
  EXPECT_EQ(named(cluster.check()), "n2 dead");
  cluster.bad_nodes = {{0, 0}};
  EXPECT_EQ(named(cluster.check()), "n0 dead") << "the others met each other in the end";
  cluster.nodes = 4;
  cluster.bad_nodes = {{0, 0}, {3, 0}};
  EXPECT_EQ(named(cluster.check()), "n0 dead, n3 dead");
  cluster.bad_nodes = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
  EXPECT_EQ(cluster.check().nodes.size(), 0U) << "nobody is sound: nobody can be told apart";
  EXPECT_EQ(cluster.check().links.size(), 6U);
}

TEST(NetworkCheck, ANetworkThatIsSlowerBetweenRacksIsNoFault) {
  Cluster cluster;
  cluster.nodes = 64;
  cluster.rack = 8;
  cluster.between_racks = 0.3;
  EXPECT_EQ(named(cluster.check()), "");
  cluster.bad_nodes = {{20, 0}, {40, 0.05}};
  EXPECT_EQ(named(cluster.check()), "n20 dead, n40 slow");
}

TEST(NetworkCheck, RandomFaultsOfUpTo4096NodesAreNamedExactly) {
  std::mt19937 random(1);
  const auto below = [&](int32_t limit) {
    return std::uniform_int_distribution<int32_t>(0, limit - 1)(random);
  };
  for (int trial = 0; trial < 300; ++trial) {
    Cluster cluster;
    cluster.random.seed(static_cast<uint32_t>(trial));
    cluster.nodes = trial % 20 == 0 ? 4'096 : 8 + below(500);
    const auto width = static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(cluster.nodes)));
    for (int i = below(4); i > 0; --i) {
      cluster.bad_nodes[below(cluster.nodes)] = below(2) == 0 ? 0 : 0.3;
    }
    for (int i = below(4); i > 0; --i) {
      const int32_t a = below(cluster.nodes);
      const int32_t b = a ^ (int32_t{1} << below(width - 1));
      if (b >= cluster.nodes || cluster.bad_nodes.contains(a) || cluster.bad_nodes.contains(b)) {
        continue;
      }
      cluster.bad_links[{std::min(a, b), std::max(a, b)}] = below(2) == 0 ? 0 : 0.3;
    }
    NetworkVerdict expected;
    for (const auto& [node, share] : cluster.bad_nodes) {
      expected.nodes.push_back({node, share == 0, share});
    }
    for (const auto& [pair, share] : cluster.bad_links) {
      expected.links.push_back({pair, share == 0, share});
    }
    const NetworkVerdict verdict = cluster.check();
    EXPECT_EQ(named(verdict), named(expected)) << trial << ": " << cluster.nodes << " nodes";
    EXPECT_LE(verdict.rounds, most_rounds(cluster.nodes));
  }
}

// The pairs of a sweep over so many nodes that have one of these.
std::set<NodePair> pairs_with(int32_t nodes, const std::set<int32_t>& bad) {
  std::set<NodePair> pairs;
  for (const int32_t node : bad) {
    for (int32_t distance = 1; distance < nodes; distance *= 2) {
      const int32_t other = node ^ distance;
      if (other < nodes) pairs.insert({std::min(node, other), std::max(node, other)});
    }
  }
  return pairs;
}

TEST(WrongData, NamesTheNodeThatAllItsPairsHave) {
  EXPECT_EQ(named(find_wrong_nodes({})), "");
  EXPECT_EQ(named(find_wrong_nodes(pairs_with(4, {3}))), "n3 ");
  EXPECT_EQ(named(find_wrong_nodes(pairs_with(16, {5}))), "n5 ");
  EXPECT_EQ(named(find_wrong_nodes(pairs_with(16, {0, 3}))), "n0 n3 ") << "1 and 2 met both";
  EXPECT_EQ(named(find_wrong_nodes(pairs_with(16, {0, 1}))), "n0 n1 ") << "they met each other";
  EXPECT_EQ(named(find_wrong_nodes(pairs_with(8, {0, 3}))), "n0 n3 ");
}

TEST(WrongData, OfOnePairNobodyKnowsWhichItIs) {
  EXPECT_EQ(named(find_wrong_nodes({{2, 6}})), "2-6? ");
  EXPECT_EQ(named(find_wrong_nodes(pairs_with(4, {0, 3}))), "0-1? 0-2? 1-3? 2-3? ")
      << "or 1 and 2: the same pairs";
}

TEST(WrongData, IsAVerdictBesideTheRatesAndNeedsNoSecondTime) {
  NetworkCheck check(4);
  for (auto pairs = check.next_round(); !pairs.empty(); pairs = check.next_round()) {
    std::vector<PairOutcome> outcomes;
    for (const NodePair& pair : pairs) outcomes.push_back({pair, true, 1e9, pair.b == 3});
    check.learn(outcomes);
  }
  EXPECT_EQ(named(check.verdict()), "");
  EXPECT_EQ(named(check.verdict().wrong), "n3 ");
  EXPECT_EQ(check.verdict().rounds, 2);
}

TEST(NetworkCheck, ManyDeadNodesAtOnce) {
  Cluster cluster;
  cluster.nodes = 256;
  for (int32_t node = 0; node < 256; node += 3) cluster.bad_nodes[node] = 0;
  const NetworkVerdict verdict = cluster.check();
  EXPECT_EQ(verdict.nodes.size(), 86U);
  EXPECT_TRUE(verdict.links.empty());
}

}  // namespace
}  // namespace hpctl::agent
