// SPDX-License-Identifier: Apache-2.0
// Text that a worker or a user wrote, made fit for one line of a message: valid UTF-8 without
// control characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hpctl {

// At most `max_bytes` of `text`; what is not printable UTF-8 becomes '?', line ends become spaces.
std::string printable_line(std::string_view text, size_t max_bytes);

}  // namespace hpctl
