// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/trainer_comparison.h"

#include <algorithm>
#include <cstdio>

#include "common/base/check.h"
#include "tests/bench/figures.h"

namespace hpctl {
namespace {

constexpr int kRounds = 3;

// In the order of the rounds.
using Runs = std::vector<Run>;

std::vector<Runs> run_in_turn(const std::vector<Contestant>& contestants) {
  std::vector<Runs> runs(contestants.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < contestants.size(); ++i) runs[i].push_back(contestants[i].run());
  }
  return runs;
}

bool all_good(const std::vector<Contestant>& contestants, const std::vector<Runs>& runs) {
  bool good = true;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (std::ranges::all_of(runs[i], &Run::good)) continue;
    std::printf("%s failed: no figures\n", contestants[i].name.c_str());
    good = false;
  }
  return good;
}

// The median of each figure.
Run middle_of(const Runs& runs) {
  Run middle;
  for (double Run::*const figure : {&Run::step_ms, &Run::comm_ms, &Run::data_ms, &Run::peak_mib}) {
    std::vector<double> values;
    for (const Run& run : runs) values.push_back(run.*figure);
    middle.*figure = testing::median(values);
  }
  return middle;
}

double speedup_of(const Runs& runs, const Runs& base) {
  std::vector<double> ratios;
  for (size_t i = 0; i < runs.size(); ++i) ratios.push_back(base[i].step_ms / runs[i].step_ms);
  return testing::median(ratios);
}

bool compare(const Comparison& comparison, nlohmann::ordered_json& cases) {
  const auto& [workers, tokens, sequences, contestants] = comparison;
  const std::vector<Runs> runs = run_in_turn(contestants);
  if (!all_good(contestants, runs)) return false;
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string& name = contestants[i].name;
    const Run middle = middle_of(runs[i]);
    const double tokens_per_s =
        static_cast<double>(workers * sequences * tokens) / middle.step_ms * 1e3;
    const double speedup = speedup_of(runs[i], runs.front());
    std::printf("%7d %6ld x %2ld  %-14s %9.1f %9.1f %9.2f %9.0f %9.0f %8.2f\n", workers,
                static_cast<long>(tokens), static_cast<long>(sequences), name.c_str(),
                middle.step_ms, middle.comm_ms, middle.data_ms, tokens_per_s, middle.peak_mib,
                speedup);
    cases.push_back({{"workers", workers},
                     {"tokens", tokens},
                     {"sequences", sequences},
                     {"what", name},
                     {"step_ms", middle.step_ms},
                     {"comm_ms", middle.comm_ms},
                     {"data_ms", middle.data_ms},
                     {"tokens_per_s", tokens_per_s},
                     {"peak_mib", middle.peak_mib},
                     {"times_" + contestants.front().name, speedup}});
  }
  return true;
}

}  // namespace

bool compare_in_turn(const std::vector<Comparison>& comparisons, nlohmann::ordered_json& cases) {
  HP_CHECK(!comparisons.empty());
  const std::string& base = comparisons.front().contestants.front().name;
  std::printf("%7s %6s x %2s  %-14s %9s %9s %9s %9s %9s %8s\n", "workers", "tokens", "of", "what",
              "step ms", "comm ms", "data ms", "tokens/s", "peak MiB", ("x " + base).c_str());
  bool good = true;
  for (const Comparison& comparison : comparisons) {
    good = compare(comparison, cases) && good;
    std::fflush(stdout);
  }
  return good;
}

}  // namespace hpctl
