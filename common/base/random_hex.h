// SPDX-License-Identifier: Apache-2.0
// Names and secrets that cannot be guessed. Any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace hpctl {

// As lower-case hexadecimal digits.
std::string to_hex(std::string_view bytes);
// Of either case; nullopt: these are not the digits of whole bytes.
std::optional<std::string> from_hex(std::string_view digits);

// So many bytes (at most 256) of the kernel's randomness, as lower-case hexadecimal digits.
Result<std::string> random_hex(size_t bytes);

// The key of a submission: a retry with the same key is the same job.
inline Result<std::string> random_key() { return random_hex(16); }

}  // namespace hpctl
