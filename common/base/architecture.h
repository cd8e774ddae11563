// SPDX-License-Identifier: Apache-2.0
// The registry of the built-in trainer's architectures: one line each. The name is the word of
// job.yaml (workload.train.model.arch), the folder in trainer/arch and the namespace of the code in
// it; trainer/arch/registry.cc and model.cc expand the same list, so that a name without its code
// does not link. What else stands in the line is what a job file is checked against, far from the
// trainer.
#pragma once

#include <array>
#include <string_view>

namespace hpctl {

enum class Positions {
  kRotary,   // turn pairs of a head's dimensions; without an end
  kLearned,  // rows of a table, model.max_positions
};
enum class KeyHeads {
  kGrouped,  // groups of query heads share one: kv_heads divides heads
  kOwn,      // each query head has one: kv_heads = heads
};

//    name   positions  key heads
#define HPCTL_ARCHITECTURES(X) \
  X(llama, kRotary, kGrouped)  \
  X(gpt, kLearned, kOwn)

struct ArchitectureTraits {
  std::string_view name;
  Positions positions;
  KeyHeads key_heads;
};

#define HPCTL_TRAITS(name, positions, key_heads) \
  ArchitectureTraits{#name, Positions::positions, KeyHeads::key_heads},
inline constexpr auto kArchitectureTraits =
    std::to_array<ArchitectureTraits>({HPCTL_ARCHITECTURES(HPCTL_TRAITS)});
#undef HPCTL_TRAITS

// Null for a name that no line has.
constexpr const ArchitectureTraits* find_architecture_traits(std::string_view name) {
  for (const ArchitectureTraits& traits : kArchitectureTraits) {
    if (traits.name == name) return &traits;
  }
  return nullptr;
}

inline bool has_learned_positions(std::string_view arch) {
  const ArchitectureTraits* traits = find_architecture_traits(arch);
  return traits != nullptr && traits->positions == Positions::kLearned;
}

}  // namespace hpctl
