// SPDX-License-Identifier: Apache-2.0
// Valid UTF-8 (Unicode 15, table 3-7): JSON and protobuf carry nothing else in a text.
#pragma once

#include <cstddef>
#include <string_view>

namespace hpctl {

// Bytes of the well-formed sequence at the start of `text`; 0 if there is none.
size_t utf8_sequence_length(std::string_view text);

bool is_utf8(std::string_view text);

// Returns whether the first character of `text` is a control character: C0, DEL or C1 (U+0080 to
// U+009F, two bytes each). A terminal obeys them.
bool starts_with_control(std::string_view text);

}  // namespace hpctl
