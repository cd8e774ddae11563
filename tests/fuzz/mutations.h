// SPDX-License-Identifier: Apache-2.0
// Inputs made of others without coverage: the same ones from the same seed, on every machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/rng.h"

namespace hpctl::fuzz {

// What has broken parsers elsewhere, whatever they read: nothing, pages of 0xff and of zeros,
// nesting without end, endless digits.
const std::vector<std::string>& awkward_inputs();

// `input` cut off at each of at most `most` places.
std::vector<std::string> truncations(std::string_view input, size_t most);

// `input`, JSON or text with some in it, with each of at most `most` of its numbers replaced: by
// floating-point ones, and by whole ones that the common types do not hold.
std::vector<std::string> with_unfit_numbers(std::string_view input, size_t most);

// One to four changes of `input`: bits, bytes, boundary numbers in text and in binary, pieces
// repeated, left out, nested or taken from `other`; of a JSON document also its values.
std::string mutated(std::string_view input, std::string_view other, Rng& rng);

}  // namespace hpctl::fuzz
