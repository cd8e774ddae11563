// SPDX-License-Identifier: Apache-2.0
// Strong types for the numbers that must never be confused with each other.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace hpctl {

template <typename Tag, typename Rep>
struct StrongId {
  Rep value{};
  auto operator<=>(const StrongId&) const = default;
};

// The Slurm job id, or 1, 2, ... on the local backend. 0 = none.
using JobId = StrongId<struct JobIdTag, uint64_t>;
// One agreed membership and rank assignment; strictly increasing within a job. 0 = none yet.
using Generation = StrongId<struct GenerationTag, uint64_t>;
// Global rank of a worker, 0 .. world_size-1.
using Rank = StrongId<struct RankTag, int32_t>;
// Position of an event in the controller's log; the first event is 1.
using Seq = StrongId<struct SeqTag, uint64_t>;

inline std::string to_string(JobId id) { return std::to_string(id.value); }
inline std::string to_string(Generation g) { return std::to_string(g.value); }
inline std::string to_string(Rank r) { return std::to_string(r.value); }

// An action is named by the event that caused it and its index among that event's actions; the
// name is its idempotency key across restarts of the controller.
struct ActionId {
  Seq seq;
  uint32_t index = 0;
  auto operator<=>(const ActionId&) const = default;
};
inline std::string to_string(ActionId id) {
  return std::to_string(id.seq.value) + "." + std::to_string(id.index);
}

}  // namespace hpctl
