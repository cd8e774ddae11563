// SPDX-License-Identifier: Apache-2.0
// Characters of valid UTF-8, one after the other, by ICU.
#pragma once

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hpctl {

// The character that ends at `at`, at > 0; moves `at` to its begin.
inline UChar32 character_before(std::string_view text, size_t& at) {
  auto place = static_cast<int32_t>(at);
  UChar32 character = 0;
  U8_PREV(text.data(), 0, place, character);
  at = static_cast<size_t>(place);
  return character;
}

// The character at `at`, which is not the end; moves `at` behind it.
inline UChar32 character_at(std::string_view text, size_t& at) {
  auto place = static_cast<int32_t>(at);
  UChar32 character = 0;
  U8_NEXT(text.data(), place, static_cast<int32_t>(text.size()), character);
  at = static_cast<size_t>(place);
  return character;
}

inline void append_character(std::string& text, UChar32 character) {
  char bytes[U8_MAX_LENGTH];
  int32_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, character);
  text.append(bytes, static_cast<size_t>(size));
}

// Where the white space begins that ends at `end`.
inline size_t spaces_before(std::string_view text, size_t end) {
  for (size_t at = end; at > 0; end = at) {
    if (u_isUWhiteSpace(character_before(text, at)) == 0) break;
  }
  return end;
}

// Where the white space ends that begins at `begin`.
inline size_t spaces_behind(std::string_view text, size_t begin) {
  for (size_t at = begin; at < text.size(); begin = at) {
    if (u_isUWhiteSpace(character_at(text, at)) == 0) break;
  }
  return begin;
}

}  // namespace hpctl
