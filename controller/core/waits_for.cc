// SPDX-License-Identifier: Apache-2.0
#include "controller/core/waits_for.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace hpctl::core {

namespace {

struct WaitPlace {
  const GroupSight* group;
  uint64_t number;
  Rank first;  // the lowest rank that waits here

  Wait of(Rank rank) const { return {rank, group->name, number}; }
};

class WaitGraph {
 public:
  explicit WaitGraph(const std::vector<GroupSight>& groups) {
    for (const GroupSight& group : groups) {
      for (const GroupSight::Member& member : group.members) {
        if (member.waits && member.completed < member.begun) add(group, member);
      }
    }
    // By rank, so that the answer does not depend on the order of the groups.
    std::set<int32_t> begun;
    for (const auto& [rank, place] : place_of_) {
      if (begun.insert(place).second) order_.push_back(place);
    }
    marks_.resize(places_.size(), Mark::kNew);
  }

  WaitsFor answer() {
    for (const int32_t place : order_) follow(place, places_[static_cast<size_t>(place)].first);
    for (const int32_t rank : culprits_) found_.culprits.push_back(Rank{rank});
    std::sort(found_.waits.begin(), found_.waits.end(),
              [](const Wait& a, const Wait& b) { return a.rank < b.rank; });
    return std::move(found_);
  }

 private:
  enum class Mark { kNew, kOnPath, kDone };
  struct Visit {
    int32_t place;
    Rank through;
  };

  void add(const GroupSight& group, const GroupSight::Member& member) {
    const uint64_t number = member.completed + 1;
    const auto [at, is_new] =
        index_.try_emplace({&group, number}, static_cast<int32_t>(places_.size()));
    if (is_new) places_.push_back({&group, number, member.rank});
    WaitPlace& place = places_[static_cast<size_t>(at->second)];
    place.first = std::min(place.first, member.rank);
    place_of_.try_emplace(member.rank.value, at->second);
  }

  bool waits(Rank rank) const { return place_of_.contains(rank.value); }

  std::vector<Rank> waited_for(const WaitPlace& place) const {
    std::vector<Rank> behind;
    std::vector<Rank> elsewhere;  // began it, and are in no collective
    for (const GroupSight::Member& member : place.group->members) {
      if (member.begun < place.number) {
        behind.push_back(member.rank);
      } else if (member.completed < place.number && !waits(member.rank)) {
        elsewhere.push_back(member.rank);
      }
    }
    std::vector<Rank>& ranks = behind.empty() ? elsewhere : behind;
    std::sort(ranks.begin(), ranks.end());
    return std::move(ranks);
  }

  // `through`: one that waits there, for whom those of the place before wait.
  void follow(int32_t number, Rank through) {
    Mark& mark = marks_[static_cast<size_t>(number)];
    if (mark == Mark::kOnPath) note_cycle(number, through);
    if (mark != Mark::kNew) return;
    mark = Mark::kOnPath;
    path_.push_back({number, through});
    const WaitPlace& place = places_[static_cast<size_t>(number)];
    bool is_direct = false;
    for (const Rank rank : waited_for(place)) {
      if (const auto next = place_of_.find(rank.value); next != place_of_.end()) {
        follow(next->second, rank);
      } else {
        culprits_.insert(rank.value);
        is_direct = true;
      }
    }
    if (is_direct) found_.waits.push_back(place.of(place.first));
    path_.pop_back();
    mark = Mark::kDone;
  }

  // The first one found is enough.
  void note_cycle(int32_t number, Rank through) {
    if (!found_.cycle.empty()) return;
    auto at = std::find_if(path_.begin(), path_.end(),
                           [&](const Visit& visit) { return visit.place == number; });
    at->through = through;  // it waits in the same place, and the last one for it
    for (; at != path_.end(); ++at) {
      found_.cycle.push_back(places_[static_cast<size_t>(at->place)].of(at->through));
    }
  }

  std::vector<WaitPlace> places_;
  std::map<std::pair<const GroupSight*, uint64_t>, int32_t> index_;  // looked up only
  std::map<int32_t, int32_t> place_of_;                              // by rank
  std::vector<int32_t> order_;
  std::vector<Mark> marks_;
  std::vector<Visit> path_;
  std::set<int32_t> culprits_;
  WaitsFor found_;
};

std::string word_of(GroupKind kind) {
  switch (kind) {
    case GroupKind::kWorld:
      return "the world";
    case GroupKind::kShard:
      return "dp_shard";
    case GroupKind::kReplicate:
      return "dp_replicate";
    case GroupKind::kPipeline:
      return "pp";
    case GroupKind::kContext:
      return "cp";
    case GroupKind::kTensor:
      return "tp";
    case GroupKind::kNone:
    case GroupKind::kEdge:
      break;
  }
  return "a group";  // of a later release
}

}  // namespace

WaitsFor find_culprits(const std::vector<GroupSight>& groups) { return WaitGraph(groups).answer(); }

std::string group_name(GroupKind kind, Rank first, Rank last) {
  if (kind == GroupKind::kEdge) {
    return "the edge from rank " + to_string(first) + " to rank " + to_string(last);
  }
  return word_of(kind) + " of ranks " + to_string(first) + " to " + to_string(last);
}

std::string describe(const Wait& wait) {
  return "rank " + to_string(wait.rank) + " waits in collective " + std::to_string(wait.number) +
         " of " + wait.group;
}

}  // namespace hpctl::core
