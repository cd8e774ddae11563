// SPDX-License-Identifier: Apache-2.0
// What must hold whatever is read.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "common/base/result.h"

namespace hpctl::fuzz {

// Ends the program when `holds` is false.
void require(bool holds, const std::string& what);

// Of a text that people are shown: UTF-8 without control characters, of a length that can be read.
// `lines`: several of them may follow each other.
void require_readable(std::string_view text, const char* what, bool lines = false);

// An error says what was wrong, readably, and names `cause` where one is given.
void require_explained(const Error& error, std::string_view cause = {});

// What was read is written, and read again, alike; what cannot be read is explained.
template <typename Read, typename Write>
void require_round_trip(std::string_view input, const Read& read, const Write& write,
                        std::string_view cause = {}) {
  const auto first = read(std::string(input));
  if (!first.ok()) return require_explained(first.error(), cause);
  const std::string text = write(*first);
  const auto second = read(text);
  require(second.ok(), "what was written is not read: " + text);
  require(write(*second) == text, "what was written is read as something else: " + text);
}

}  // namespace hpctl::fuzz
