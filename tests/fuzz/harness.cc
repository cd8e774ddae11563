// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/harness.h"

#include "tests/fuzz/input_guard.h"

namespace hpctl::fuzz {

const Harness* find_harness(std::string_view name) {
  for (const Harness& harness : all_harnesses()) {
    if (name == harness.name) return &harness;
  }
  return nullptr;
}

void run(const Harness& harness, std::string_view input) {
  const InputGuard guard(harness.name, input,
                         harness.memory + harness.memory_per_byte * input.size());
  harness.run(input);
}

std::vector<Harness> joined(std::initializer_list<std::vector<Harness>> groups) {
  std::vector<Harness> all;
  for (const auto& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace hpctl::fuzz
