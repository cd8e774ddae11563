// SPDX-License-Identifier: Apache-2.0
// The registry of the built-in trainer's architectures: one line each. The name is the word of
// job.yaml (workload.train.model.arch), the folder in trainer/arch and the namespace of the code in
// it; `forward` is the namespace of its forward pass, which architectures may share.
// trainer/arch/registry.cc and model.cc expand the same list, so a name without its code does not
// link. The rest of the line is for the check of a job file, which happens far from the trainer.
#pragma once

#include <array>
#include <cstddef>

#include "common/base/word_enum.h"

namespace hpctl {

enum class Positions {
  kRotary,   // turn pairs of a head's dimensions; without an end
  kLearned,  // rows of a table, model.max_positions
};
enum class KeyHeads {
  kGrouped,  // groups of query heads share one: kv_heads divides heads
  kOwn,      // each query head has one: kv_heads = heads
};
enum class HeadDim {
  kOfDim,  // dim / heads
  kFree,   // that, or model.head_dim
};
enum class Window {
  kNone,     // a token attends to all before it
  kSliding,  // or to the last model.sliding_window, its own included
};

//    name     forward  positions  key heads  head_dim  window
#define HPCTL_ARCHITECTURES(X)                      \
  X(llama, llama, kRotary, kGrouped, kFree, kNone)  \
  X(gpt, gpt, kLearned, kOwn, kOfDim, kNone)        \
  X(qwen2, llama, kRotary, kGrouped, kOfDim, kNone) \
  X(qwen3, llama, kRotary, kGrouped, kFree, kNone)  \
  X(mistral, llama, kRotary, kGrouped, kFree, kSliding)

#define HPCTL_NAME(name, ...) name,
enum class Arch { HPCTL_ARCHITECTURES(HPCTL_NAME) };
#undef HPCTL_NAME
#define HPCTL_WORD(name, ...) #name,
constexpr auto words_of(Arch) {
  return std::to_array<const char*>({HPCTL_ARCHITECTURES(HPCTL_WORD)});
}
#undef HPCTL_WORD

struct ArchitectureTraits {
  Positions positions;
  KeyHeads key_heads;
  HeadDim head_dim;
  Window window;
};

#define HPCTL_TRAITS(name, forward, positions, key_heads, head_dim, window) \
  {Positions::positions, KeyHeads::key_heads, HeadDim::head_dim, Window::window},
inline constexpr auto kArchitectureTraits =
    std::to_array<ArchitectureTraits>({HPCTL_ARCHITECTURES(HPCTL_TRAITS)});
#undef HPCTL_TRAITS

constexpr const ArchitectureTraits& traits_of(Arch arch) {
  return kArchitectureTraits[static_cast<size_t>(arch)];
}

}  // namespace hpctl
