// SPDX-License-Identifier: Apache-2.0
// The implementations of attention in a model (attention.h). Free of LibTorch, because a
// checkpoint's environment records them, too.
#pragma once

#include <array>
#include <cstddef>

namespace hpctl {

// kBlocks: a CPU's kernel. The others are a GPU's: kFused has a call for each sequence or document;
// kPacked one for all documents and for windows, and else is as kFused.
enum class AttentionBackend { kBlocks, kFused, kPacked, kProducts };

inline const char* to_word(AttentionBackend by) {
  constexpr std::array<const char*, 4> kWords = {"blocks", "fused", "packed", "products"};
  return kWords[static_cast<size_t>(by)];
}

}  // namespace hpctl
