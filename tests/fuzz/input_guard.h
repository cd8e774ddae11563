// SPDX-License-Identifier: Apache-2.0
// Watches one run of a harness: says which input it was when the program ends in it, and ends it
// when it allocates too much or computes for too long.
#pragma once

#include <cstddef>
#include <string_view>

namespace hpctl::fuzz {

// One at a time, of the main thread. The memory is counted under the address sanitizer only.
class InputGuard {
 public:
  InputGuard(const char* harness, std::string_view input, size_t most_bytes);
  ~InputGuard();
  InputGuard(const InputGuard&) = delete;
  InputGuard& operator=(const InputGuard&) = delete;

 private:
  size_t most_bytes_;
};

}  // namespace hpctl::fuzz
