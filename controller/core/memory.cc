// SPDX-License-Identifier: Apache-2.0
// Whether, and how, the next generation can start from the state that earlier ranks left in memory.
//
// Arenas belong to places: a node's session and a local rank. The exit of the rank that was there
// reported the content of the arena (Slot::seals); another rank may come there now. A state is
// complete if each of its parts is in an arena of a place that the generation has, as the part of
// the former rank or as the copy that it kept. Then
//
//   the parts fit this generation   a rank without its part gets it from the rank that has it
//                                   (Job::refilled); the others have nothing to do
//   any other division              all ranks exchange the parts that they need
//                                   (Job::former_parts; trainer/state/reshard.h)
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "common/job/snapshot_peers.h"
#include "common/layout/sharding.h"
#include "controller/core/plan.h"
#include "controller/core/rules.h"

namespace hpctl::core {

namespace {

constexpr size_t kStatesTried = 8;

// One that may be whole, and into how many parts it is divided.
struct DividedState {
  Seal seal;
  int32_t parts = 0;
};

// By rank of the generation to come: what the arena of its place has; null = nothing.
using Arenas = std::vector<const ArenaSeals*>;

bool has(const std::vector<Seal>& seals, const Seal& seal) {
  return std::find(seals.begin(), seals.end(), seal) != seals.end();
}

// It is of the present generation's history: sealed in it, or what it began with.
bool counts(const Job& job, const Seal& seal) {
  const bool began_with = job.memory_of != Generation{} && seal.step == job.start_step;
  return seal.generation == job.generation.value || began_with;
}

// Reported for the ranks of `generation`, converted for the ranks of the next generation.
Arenas find_arenas(Transition& t, const Job& job, Generation generation) {
  const int32_t per_node = job.spec.workers_per_node;
  std::map<std::string, Arenas> by_life;
  const State& state = t.state();
  auto row = state.slots.lower_bound(SlotKey{job.id, Rank{0}});
  for (; row != state.slots.end() && row->first.job == job.id; ++row) {
    const Slot& slot = row->second;
    if (slot.generation != generation || slot.seals.parts == 0) continue;
    Arenas& places = by_life[slot.arena_boot_id];
    places.resize(static_cast<size_t>(per_node));
    places[static_cast<size_t>(slot.key.rank.value % per_node)] = &slot.seals;
  }
  Arenas arenas(static_cast<size_t>(job.world_size()));
  for (const Node* node : t.nodes(job.id)) {
    const auto places = by_life.find(node->boot_id);
    if (places == by_life.end()) continue;
    for (const Slot* slot : t.slots(*node)) {
      const int32_t rank = slot->key.rank.value;
      arenas[static_cast<size_t>(rank)] = places->second[static_cast<size_t>(rank % per_node)];
    }
  }
  return arenas;
}

// States with the part of some rank: the newest few, as there are more only after an error. For a
// state that was being resharded, first the division of the next ranks.
std::vector<DividedState> states_in(const Job& job, const Arenas& arenas) {
  const int32_t wanted = parts_of_state(job);
  const auto key = [wanted](const DividedState& s) {
    return std::tuple(s.seal.step, s.seal.digest, s.seal.generation, s.parts == wanted, s.parts);
  };
  const auto newer = [key](const DividedState& a, const DividedState& b) {
    return key(b) < key(a);
  };
  std::set<DividedState, decltype(newer)> found(newer);
  for (const ArenaSeals* arena : arenas) {
    if (arena == nullptr) continue;
    for (const Seal& seal : arena->own) {
      if (counts(job, seal)) found.insert({seal, arena->parts});
    }
  }
  std::vector<DividedState> newest(found.begin(), found.end());
  newest.resize(std::min(newest.size(), kStatesTried));
  return newest;
}

bool has_own(const ArenaSeals* arena, const DividedState& state, int32_t part) {
  return arena != nullptr && arena->parts == state.parts && arena->part == part &&
         has(arena->own, state.seal);
}

// The state is divided as the generation divides it. Ranks without their own part; nullopt where
// one of them cannot get it from a replica, or from the rank that keeps its copy.
std::optional<std::vector<Rank>> ranks_to_refill(const Job& job, const Arenas& arenas,
                                                 const DividedState& state) {
  const auto mesh = mesh_of(*job.spec.train, job.world_size(), job.spec.workers_per_node);
  if (!mesh.ok() || state.parts != mesh->parts()) return std::nullopt;
  std::vector<Rank> without;
  std::set<int32_t> present;
  for (int32_t rank = 0; rank < job.world_size(); ++rank) {
    const int32_t part = mesh->part(rank);
    if (has_own(arenas[static_cast<size_t>(rank)], state, part)) {
      present.insert(part);
    } else {
      without.push_back(Rank{rank});
    }
  }
  for (const Rank rank : without) {
    if (present.contains(mesh->part(rank.value))) continue;
    const int32_t holder = snapshot_holder(rank.value, job.world_size(), job.spec.workers_per_node);
    const ArenaSeals* arena = arenas[static_cast<size_t>(holder)];
    const bool keeps_it = state.parts == job.world_size() && has_own(arena, state, holder) &&
                          arena->copied_part == rank.value && has(arena->copies, state.seal);
    if (!keeps_it) return std::nullopt;
  }
  return without;
}

// Each part is somewhere.
bool is_whole(const Arenas& arenas, const DividedState& state) {
  std::set<int32_t> present;
  for (const ArenaSeals* arena : arenas) {
    if (arena == nullptr || arena->parts != state.parts) continue;
    if (has(arena->own, state.seal)) present.insert(arena->part);
    if (arena->copied_part >= 0 && has(arena->copies, state.seal)) {
      present.insert(arena->copied_part);
    }
  }
  return present.size() == static_cast<size_t>(state.parts);
}

}  // namespace

int32_t parts_of_state(const Job& job) {
  return state_parts(*job.spec.train, job.world_size(), job.spec.workers_per_node);
}

std::optional<Facts::Origin> find_in_memory(Transition& t, const Job& job) {
  const Arenas arenas = find_arenas(t, job, job.generation);
  for (const DividedState& state : states_in(job, arenas)) {
    Facts::Origin origin{"", state.seal.step, job.generation, job.generation};
    if (auto without = ranks_to_refill(job, arenas, state)) {
      origin.refilled = *std::move(without);
      return origin;
    }
    if (!is_whole(arenas, state)) continue;
    origin.former_parts = state.parts;
    return origin;
  }
  return std::nullopt;
}

std::vector<ArenaSeals> find_arenas_left(Transition& t, const Job& job) {
  std::vector<ArenaSeals> left;
  if (job.memory_of == Generation{}) return left;
  for (const ArenaSeals* arena : find_arenas(t, job, job.memory_of)) {
    left.push_back(arena == nullptr ? ArenaSeals{} : *arena);
  }
  return left;
}

}  // namespace hpctl::core
