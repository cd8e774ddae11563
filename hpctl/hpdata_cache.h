// SPDX-License-Identifier: Apache-2.0
// The part of hpdata that `hpctl submit` runs, with arguments that hpctl has checked:
//
//   hpdata cache --tokenizer=T --format=WORD --chat-template=WORD --directory=DIR --max-bytes=N
//          --vocabulary=N --workers=N -- INPUT
//
// prints {"prefix", "new"} or {"error"} on stdout, and progress on stderr (prepare/cached.h). Its
// exit status is 2 where the error is in what the job file says or names, else 1.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/word_enum.h"

namespace hpctl {

// Moves VALUE of "NAME=VALUE" to `value`; false: another word.
inline bool take(const std::string& word, const std::string& name, std::string& value) {
  if (!word.starts_with(name + "=")) return false;
  value = word.substr(name.size() + 1);
  return true;
}

inline int64_t monotonic_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The same for a word of an enumeration; one that is not known is not taken.
template <WordEnum E>
bool take_word(const std::string& word, const std::string& name, E& value) {
  std::string text;
  if (!take(word, name, text)) return false;
  const std::optional<E> known = from_word<E>(text);
  if (known) value = *known;
  return known.has_value();
}

// The exit code.
int run_cache(const std::vector<std::string>& words);

}  // namespace hpctl
