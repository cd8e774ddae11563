// SPDX-License-Identifier: Apache-2.0
// hpctl_sim: the controller core in a simulated cluster, seed after seed.
//
//   hpctl_sim --seconds S [--seed-base N] [--threads N]     new seeds until the time is up
//   hpctl_sim --seeds COUNT [--seed-base N] [--threads N]   so many; without either, for ever
//   hpctl_sim --seed N [--trace] [--mutant NAME]            one seed, with its history
//   hpctl_sim --mutants --seeds COUNT [--seed-base N]       clusters that lack a mend: a seed of so
//                                                           many must find each
//
// Exit code 0 = every seed held, or every mutant was found; 1 = a violation, printed with the
// command that replays it, or a mutant that was not found.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/sim/simulation.h"

namespace {

using hpctl::sim::SeedResult;

constexpr uint64_t kTwiceEvery = 20;  // every 20th seed runs twice and must match

// HP_CHECK aborts; say which seed it was.
thread_local char epitaph[64];
void on_abort(int) { (void)!write(STDERR_FILENO, epitaph, std::strlen(epitaph)); }

void announce(uint64_t seed) {
  std::snprintf(epitaph, sizeof(epitaph), "aborted in seed %lu\n", seed);
}

struct Totals {
  std::mutex mutex;
  uint64_t seeds = 0, twice = 0, failures = 0;
  SeedResult sum;
};

SeedResult run_checked(uint64_t seed, bool twice) {
  announce(seed);
  SeedResult result = hpctl::sim::run_seed(seed, false);
  if (twice && hpctl::sim::run_seed(seed, false).digest != result.digest) {
    result.violation = "two runs of the same seed differ";
  }
  return result;
}

void add(Totals& totals, uint64_t seed, bool twice, const SeedResult& r) {
  const std::lock_guard lock(totals.mutex);
  totals.seeds += 1;
  totals.twice += twice ? 1 : 0;
  totals.sum.add(r);
  if (r.violation.empty()) return;
  totals.failures += 1;
  std::printf("seed %lu: %s\n  replay: hpctl_sim --seed %lu --trace\n", seed, r.violation.c_str(),
              seed);
}

int run_many(double seconds, uint64_t seeds, uint64_t base, unsigned threads) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  Totals totals;
  std::atomic<uint64_t> next{base};
  std::vector<std::jthread> pool;
  for (unsigned i = 0; i < threads; ++i) {
    pool.emplace_back([&] {
      for (uint64_t seed = 0; elapsed() < seconds && (seed = next++) - base < seeds;) {
        const bool twice = seed % kTwiceEvery == 0;
        add(totals, seed, twice, run_checked(seed, twice));
      }
    });
  }
  pool.clear();  // joins
  const SeedResult& sum = totals.sum;
  std::printf(
      "sim: %lu seeds from %lu in %.1f s (%.1f seeds/s on %u threads), %lu of them twice; %lu "
      "events, %.0f simulated hours\n%ssim: %lu violations\n",
      totals.seeds, base, elapsed(), static_cast<double>(totals.seeds) / elapsed(), threads,
      totals.twice, sum.events, static_cast<double>(sum.simulated_ms) / 3'600'000.0,
      hpctl::sim::describe(sum).c_str(), totals.failures);
  return totals.failures == 0 ? 0 : 1;
}

bool find_mutant(hpctl::sim::Mutant mutant, uint64_t seeds, uint64_t base) {
  for (uint64_t seed = base; seed - base < seeds; ++seed) {
    announce(seed);
    const std::string violation = hpctl::sim::run_seed(seed, false, mutant).violation;
    if (violation.empty()) continue;
    std::printf("mutant %s: %s\n  replay: hpctl_sim --mutant %s --seed %lu --trace\n",
                to_string(mutant), violation.c_str(), to_string(mutant), seed);
    return true;
  }
  std::printf("mutant %s: NOT FOUND in %lu seeds\n", to_string(mutant), seeds);
  return false;
}

int find_mutants(uint64_t seeds, uint64_t base) {
  bool all = true;
  for (const auto mutant : hpctl::sim::kMutants) all = find_mutant(mutant, seeds, base) && all;
  return all ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGABRT, on_abort);
  double seconds = std::numeric_limits<double>::infinity();
  uint64_t seeds = std::numeric_limits<uint64_t>::max();
  uint64_t base = 1;
  unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  const char* seed = nullptr;
  auto mutant = hpctl::sim::Mutant::kNone;
  const bool trace = std::string(argv[argc - 1]) == "--trace";
  for (int i = 1; i + 1 < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--seconds") seconds = std::atof(argv[i + 1]);
    if (option == "--seeds") seeds = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--seed-base") base = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--threads") threads = static_cast<unsigned>(std::atoi(argv[i + 1]));
    if (option == "--seed") seed = argv[i + 1];
    if (option == "--mutant") mutant = hpctl::sim::parse_mutant(argv[i + 1]).value_or(mutant);
  }
  const bool is_mutants = argc > 1 && std::string(argv[1]) == "--mutants";
  if (is_mutants) return find_mutants(seeds, base);
  if (seed == nullptr) return run_many(seconds, seeds, base, threads);
  const SeedResult r = hpctl::sim::run_seed(std::strtoull(seed, nullptr, 10), trace, mutant);
  std::printf("seed %s: digest %016lx, %lu events, %s\n", seed, r.digest, r.events,
              r.violation.empty() ? "held" : r.violation.c_str());
  return r.violation.empty() ? 0 : 1;
}
