// SPDX-License-Identifier: Apache-2.0
// Finds the nodes, and the links between nodes, that are slow or dead. Pairs of nodes exchange
// bytes, all pairs of a round at the same time, and O(log N) rounds name the culprits. Pure: the
// caller makes the transfers.
//
// The sweep has ceil(log2 N) rounds; in round k node i meets node i XOR 2^k. So each node meets
// others near and far, by the numbering of nodes, which clusters give out along racks. A pair is
// bad when nothing was carried, or less than kSlowShare of what the round's median pair carried (of
// all pairs, if a round has few). All pairs of a round span the same distance, so a network that is
// slower between racks than within them is not taken for a fault.
//
// A node that had a good pair is sound; the bad part is the link to the partner of the bad pair. A
// node without any good pair is a suspect. Each suspect then meets a sound node, one that it has
// not met if there is one, and each suspected link is tried again. Only a second bad result names a
// node as a whole, or the links of sound nodes. So a transient fault names nothing.
//
// Data that arrived changed is a separate verdict, beside the rates. It names a node at once, since
// there is no harmless reason for it (find_wrong_nodes).
//
// The check does not see links that no pair of the sweep covers: a fault of the path between two
// sound nodes is found if their numbers differ in one bit. Those are the paths of recursive
// doubling; all N²/2 paths would take N-1 rounds.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace hpctl::agent {

inline constexpr double kSlowShare = 0.5;

struct NodePair {
  int32_t a = 0;
  int32_t b = 0;  // > a
  auto operator<=>(const NodePair&) const = default;
};

struct PairOutcome {
  NodePair pair;
  bool carried = false;    // bytes arrived at both
  double bytes_per_s = 0;  // of the slower direction
  bool wrong = false;      // something arrived otherwise than it was sent, or was added up wrongly
};

struct WrongNodes {
  std::vector<int32_t> nodes;   // ascending
  std::vector<NodePair> pairs;  // ascending; it is one of the two, and nothing tells which
};
// The nodes that explain the pairs with wrong data: a node with two or more of them, and with more
// than each of its partners in them. Of partners with equally many, both are named if each has two
// others. Its pairs are explained then, and so on.
WrongNodes find_wrong_nodes(std::set<NodePair> wrong);

struct NetworkVerdict {
  struct Node {
    int32_t node = 0;
    bool dead = false;  // carries nothing; else it is slow
    double share = 0;   // of the median
  };
  struct Link {
    NodePair pair;
    bool dead = false;
    double share = 0;
    bool blames_nobody = false;  // no sound node was left to tell which of the two it is
  };
  std::vector<Node> nodes;  // ascending, likewise
  std::vector<Link> links;
  WrongNodes wrong;               // data that did not arrive as it was sent
  double median_bytes_per_s = 0;  // of all pairs that carried anything
  int32_t rounds = 0;
  size_t pairs = 0;  // that were tried
};

// Rounds that a check of so many nodes takes at most.
int32_t most_rounds(int32_t nodes);

class NetworkCheck {
 public:
  explicit NetworkCheck(int32_t nodes);

  // Disjoint pairs to try now, ascending; empty = the verdict stands. Precondition: the outcome of
  // the round before was learned.
  std::vector<NodePair> next_round();
  // One outcome for each pair of the round.
  void learn(const std::vector<PairOutcome>& outcomes);

  NetworkVerdict verdict() const;

 private:
  struct Trial {
    bool dead = false;
    bool bad = false;
    double share = 0;
  };

  static Trial judge(const PairOutcome& outcome, double median);
  void judge_sweep();
  void confirm(const PairOutcome& outcome);
  bool is_sound(int32_t node) const { return sound_.contains(node); }
  bool have_met(int32_t a, int32_t b) const;
  int32_t partner_for(int32_t suspect, const std::set<int32_t>& busy) const;
  std::vector<NodePair> next_confirmation() const;
  void name_node(int32_t node, const Trial& trial);

  const int32_t nodes_;
  int32_t rounds_ = 0;
  size_t pairs_ = 0;   // tried
  int32_t sweep_ = 0;  // rounds of it
  std::vector<std::vector<PairOutcome>> swept_;
  std::map<NodePair, Trial> trials_;  // of the sweep
  std::set<int32_t> sound_;           // had a good pair
  std::set<int32_t> suspects_;        // had none, and have not met a sound node since
  std::set<NodePair> to_try_again_;   // links
  std::set<NodePair> unexplained_;    // bad pairs of suspects
  std::set<NodePair> wrong_;          // whatever their rate was
  double median_ = 0;                 // of all pairs
  double least_median_ = 0;           // of the rounds
  std::map<int32_t, Trial> bad_nodes_;
  std::map<NodePair, Trial> bad_links_;
};

}  // namespace hpctl::agent
