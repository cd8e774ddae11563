// SPDX-License-Identifier: Apache-2.0
// Data sets have lines that Python's json module writes and a strict parser refuses: NaN, Infinity,
// numbers beyond a double, and escapes of half a surrogate pair. Under a key that nobody reads they
// do no harm.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hpctl {

// The keys of a line whose values are read. All other keys' values are unread.
struct ReadKeys {
  std::vector<std::string> line;  // of the line's object
  // Of the objects in the list under one of them ("messages"); none = those are read whole.
  std::vector<std::string> element;
};

// The line, in which unread values have 0 for a number that JSON lacks, and U+FFFD for half a
// surrogate pair. All else stays, as do the columns, so a strict parser still finds what is wrong.
std::string without_unread_faults(std::string_view line, const ReadKeys& keys);

}  // namespace hpctl
