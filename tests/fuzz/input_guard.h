// SPDX-License-Identifier: Apache-2.0
// Watches one run of a harness: ends it when it allocates too much, and, where libFuzzer does not
// do that, when it computes for too long, and says which input it was when the program ends.
#pragma once

#include <cstddef>
#include <string_view>

namespace hpctl::fuzz {

// From here on. For programs without libFuzzer.
void show_inputs_that_end_the_program();

// Memory is counted under the address sanitizer only.
bool counts_memory();

// One at a time, of the main thread.
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
