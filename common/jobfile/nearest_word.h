// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...?": the known word closest to the user's input.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hpctl {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal
// string alignment).
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest distance, the first of equals; nullopt when even that one differs
// in more than a third of the word (at least one edit is always allowed).
std::optional<std::string> nearest_word(std::string_view word,
                                        const std::vector<std::string>& candidates);

}  // namespace hpctl
