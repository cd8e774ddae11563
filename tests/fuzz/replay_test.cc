// SPDX-License-Identifier: Apache-2.0
// The harnesses without libFuzzer: a bounded number of inputs, the same ones every time.
// HPCTL_FUZZ_MUTATIONS=N changes their number, HPCTL_FUZZ_SEED=N their choice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/base/rng.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/input_guard.h"
#include "tests/fuzz/mutations.h"
#include "tests/fuzz/properties.h"

namespace hpctl::fuzz {
namespace {

constexpr uint64_t kMutations = 1500;
constexpr size_t kTruncations = 100;
constexpr size_t kUnfitNumbers = 100;  // in all inputs of a harness together

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Fuzz : public ::testing::TestWithParam<Harness> {
 protected:
  static void SetUpTestSuite() { show_inputs_that_end_the_program(); }
};

TEST_P(Fuzz, SoundInputs) {
  for (const std::string& input : sound_inputs(GetParam())) run(GetParam(), input);
}

TEST_P(Fuzz, Regressions) {
  for (const Regression& regression : regressions(GetParam())) {
    SCOPED_TRACE(regression.name);
    run(GetParam(), regression.input);
  }
}

TEST_P(Fuzz, AwkwardInputs) {
  for (const std::string& input : awkward_inputs()) run(GetParam(), input);
  const std::vector<std::string> inputs = sound_inputs(GetParam());
  const size_t unfit_numbers = std::max<size_t>(1, kUnfitNumbers / inputs.size());
  for (const std::string& input : inputs) {
    for (const std::string& cut : truncations(input, kTruncations)) run(GetParam(), cut);
    for (const std::string& unfit : with_unfit_numbers(input, unfit_numbers)) {
      run(GetParam(), unfit);
    }
  }
}

TEST_P(Fuzz, Mutations) {
  std::vector<std::string> inputs = sound_inputs(GetParam());
  for (const Regression& regression : regressions(GetParam())) inputs.push_back(regression.input);
  Rng rng(number_from("HPCTL_FUZZ_SEED", 1));
  for (uint64_t i = number_from("HPCTL_FUZZ_MUTATIONS", kMutations); i > 0; --i) {
    const std::string& input = inputs[rng.below(inputs.size())];
    run(GetParam(), mutated(input, inputs[rng.below(inputs.size())], rng));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fuzz, ::testing::ValuesIn(all_harnesses()),
                         [](const auto& harness) { return std::string(harness.param.name); });

TEST(FuzzDeathTest, TheInputThatBreaksAPropertyIsShown) {
  const Harness broken = {"broken", [](std::string_view) { require(false, "it does not hold"); },
                          nullptr};
  show_inputs_that_end_the_program();
  EXPECT_DEATH(run(broken, "ab"), "it does not hold(.|\n)*in harness broken, by(.|\n)*6162");
}

TEST(FuzzDeathTest, WhatIsAllocatedOutOfProportionIsAFault) {
  if (!counts_memory()) GTEST_SKIP() << "without the address sanitizer memory is not counted";
  const Harness greedy = {"greedy",
                          [](std::string_view input) {
                            const std::string memory(input.size() << 20, 'x');
                            // The words fit into their string: nothing else is allocated.
                            require(memory.back() == 'x', "it is lost");
                          },
                          nullptr};
  run(greedy, "a");
  EXPECT_DEATH(run(greedy, "abcdefgh"), "8388609 bytes were allocated at one time");
}

// A directory of a harness that was renamed would be replayed by nobody.
TEST(FuzzRegressions, EachDirectoryHasItsHarness) {
  for (const auto& entry : std::filesystem::directory_iterator(regressions_directory())) {
    if (!entry.is_directory()) continue;
    EXPECT_NE(find_harness(entry.path().filename().string()), nullptr) << entry.path();
  }
}

}  // namespace
}  // namespace hpctl::fuzz
