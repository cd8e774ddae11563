// SPDX-License-Identifier: Apache-2.0
// The part of hpdata that `hpctl submit` runs, with arguments that hpctl has checked:
//
//   hpdata cache --tokenizer=T --directory=DIR --max-bytes=N --vocabulary=N --workers=N -- INPUT
//
// prints {"prefix", "new"} or {"error"} on stdout, and progress on stderr (prepare/cached.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

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

// The exit code.
int run_cache(const std::vector<std::string>& words);

}  // namespace hpctl
