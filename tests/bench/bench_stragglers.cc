// SPDX-License-Identifier: Apache-2.0
// Precision and recall of the judge of slow ranks (controller/core/straggler.h), over worlds that
// are drawn here: what each rank takes for its part of each step, all of which the judge hears.
//
//   even   one step's time is log-normal, with the given deviation, independent of all others
//   tails  besides, one step in a hundred takes longer by a Pareto-distributed part (1.5), 20 times
//   at most drift  besides, each rank becomes slower and faster: deviation 5 %, forgotten within
//   200 steps mixed  besides, each rank is for ever a little faster or slower than others:
//   deviation 3 %
//
// Of a world without slowness each name is a false one. Into others one rank that is slower, or a
// whole node, is put from a random step on: was it named within kPatience steps, after how many,
// and who else was?
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "controller/core/straggler.h"

namespace {

using namespace hpctl;

constexpr uint64_t kPatience = 300;  // steps
constexpr double kUsualNs = 1e9;
constexpr double kOwnPart = 0.5;  // of a step of the usual length
constexpr std::array kNoises = {0.02, 0.05, 0.10, 0.20};
constexpr std::array kSlowdowns = {1.1, 1.2, 1.3, 1.4, 1.5, 2.0, 3.0};

enum class Luck { kEven, kTails, kDrift, kMixed };
constexpr std::array kLucks = {Luck::kEven, Luck::kTails, Luck::kDrift, Luck::kMixed};
const char* name_of(Luck luck) {
  constexpr std::array kNames = {"even", "tails", "drift", "mixed"};
  return kNames[static_cast<size_t>(luck)];
}

struct World {
  int ranks;
  int ranks_per_node;
};
constexpr std::array kWorlds = {World{4, 2}, World{16, 8}, World{64, 8}, World{512, 8}};

double gaussian(Rng& rng) {
  const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
  return radius * std::cos(2 * M_PI * rng.uniform());
}

// What the ranks take, step by step.
class Pace {
 public:
  Pace(const World& world, double noise, Luck luck, uint64_t seed)
      : luck_(luck),
        rng_(seed),
        drift_(static_cast<size_t>(world.ranks)),
        usual_(drift_.size(), 1) {
    for (double& one : table_) one = std::exp(noise * gaussian(rng_));
    if (luck_ != Luck::kMixed) return;
    for (double& one : usual_) one = std::exp(kMixed * gaussian(rng_));
  }

  double of(int rank) {
    const auto at = static_cast<size_t>(rank);
    double times = table_[rng_.next() % kTable] * usual_[at];
    if (luck_ == Luck::kEven) return times;
    if (rng_.chance(0.01)) times *= std::min(20.0, std::pow(1 - rng_.uniform(), -1 / 1.5));
    if (luck_ != Luck::kDrift) return times;
    constexpr double kKept = 1 - 1.0 / 200;
    // The table's noise would do as well; this has a deviation of its own.
    drift_[at] = kKept * drift_[at] + std::sqrt(1 - kKept * kKept) * kDrift * gaussian(rng_);
    return times * std::exp(drift_[at]);
  }

 private:
  static constexpr size_t kTable = 1 << 14;
  static constexpr double kMixed = 0.03;
  static constexpr double kDrift = 0.05;

  Luck luck_;
  Rng rng_;
  std::vector<double> drift_;  // logarithm
  std::vector<double> usual_;
  std::array<double, kTable> table_{};
};

// A job that is judged as it trains.
class Job {
 public:
  Job(const World& world, double noise, Luck luck, uint64_t seed)
      : world_(world), pace_(world, noise, luck, seed), watch_({1}, 0, world.ranks, {}) {
    own_ns_.resize(static_cast<size_t>(world.ranks));
    for (int rank = 0; rank < world.ranks; ++rank) nodes_.push_back(node_of(rank));
  }

  std::string node_of(int rank) const { return "n" + std::to_string(rank / world_.ranks_per_node); }

  // Ranks [from, until) take `times` as long.
  core::StragglerNews step(int from, int until, double times) {
    ++step_;
    double slowest_ns = 0;
    for (int rank = 0; rank < world_.ranks; ++rank) {
      const double slow = from <= rank && rank < until ? times : 1;
      double& own_ns = own_ns_[static_cast<size_t>(rank)];
      own_ns = kUsualNs * slow * pace_.of(rank);
      slowest_ns = std::max(slowest_ns, own_ns);
    }
    const double step_ns = kUsualNs * (1 / kOwnPart - 1) + slowest_ns;
    for (int rank = 0; rank < world_.ranks; ++rank) {
      const auto at = static_cast<size_t>(rank);
      watch_.add(
          {Rank{rank}, step_, static_cast<uint64_t>(own_ns_[at]), static_cast<uint64_t>(step_ns)},
          nodes_[at]);
    }
    return watch_.is_round_over() ? watch_.judge() : core::StragglerNews{};
  }

 private:
  World world_;
  Pace pace_;
  core::StragglerWatch watch_;
  std::vector<double> own_ns_;
  std::vector<std::string> nodes_;
  uint64_t step_ = 0;
};

void measure_false_names(const World& world, double noise, Luck luck, double rank_steps) {
  Job job(world, noise, luck, 1);
  const auto steps = static_cast<int64_t>(rank_steps / world.ranks);
  int64_t names = 0;
  for (int64_t step = 0; step < steps; ++step) {
    names += static_cast<int64_t>(job.step(0, 0, 1).found.size());
  }
  std::printf(
      "{\"bench\":\"stragglers_even\",\"ranks\":%d,\"luck\":\"%s\",\"noise\":%.2f,"
      "\"rank_steps\":%.0f,\"false_names\":%ld,\"per_million\":%.4f}\n",
      world.ranks, name_of(luck), noise, rank_steps, static_cast<long>(names),
      static_cast<double>(names) * 1e6 / rank_steps);
  std::fflush(stdout);
}

struct Score {
  int runs = 0;
  int right = 0;      // the node, and the rank where it is one
  int wrong = 0;      // nodes that were even
  int misplaced = 0;  // the node, and not its slow rank alone
  std::vector<uint64_t> steps;
};

// One world, until who is slow was named.
void run_injected(const World& world, double noise, Luck luck, double times, bool whole_node,
                  uint64_t seed, Score& score) {
  Job job(world, noise, luck, mix64(seed + 1));
  Rng rng(mix64(~seed));
  const int slow = static_cast<int>(rng.below(static_cast<uint64_t>(world.ranks)));
  const int first = whole_node ? slow - slow % world.ranks_per_node : slow;
  const int until = whole_node ? first + world.ranks_per_node : slow + 1;
  const auto before = static_cast<int>(rng.below(20));
  for (int step = 0; step < before; ++step) score.wrong += !job.step(0, 0, 1).found.empty();
  score.runs += 1;
  for (uint64_t step = 1; step <= kPatience; ++step) {
    for (const core::Straggler& found : job.step(first, until, times).found) {
      if (found.node != job.node_of(slow)) {
        score.wrong += 1;
        continue;
      }
      score.misplaced += !whole_node && found.rank != slow;
      score.right += 1;
      score.steps.push_back(step);
      return;
    }
  }
}

void measure_recall(const World& world, double noise, Luck luck, double times, bool whole_node,
                    int runs) {
  Score score;
  for (int run = 0; run < runs; ++run) {
    run_injected(world, noise, luck, times, whole_node, static_cast<uint64_t>(run), score);
  }
  std::sort(score.steps.begin(), score.steps.end());
  const auto part = [&](double share) -> long {
    if (score.steps.empty()) return -1;
    const auto at = static_cast<size_t>(share * static_cast<double>(score.steps.size() - 1));
    return static_cast<long>(score.steps[at]);
  };
  std::printf(
      "{\"bench\":\"stragglers\",\"ranks\":%d,\"luck\":\"%s\",\"noise\":%.2f,\"slow\":\"%s\","
      "\"times\":%.1f,\"runs\":%d,\"recall\":%.3f,\"precision\":%.3f,\"misplaced\":%d,"
      "\"steps_p50\":%ld,\"steps_p99\":%ld}\n",
      world.ranks, name_of(luck), noise, whole_node ? "node" : "rank", times, score.runs,
      static_cast<double>(score.right) / score.runs,
      static_cast<double>(score.right) / std::max(1, score.right + score.wrong), score.misplaced,
      part(0.5), part(0.99));
  std::fflush(stdout);
}

}  // namespace

// bench_stragglers [RANK_STEPS [RUNS]]: of each even world, and runs of each slow one
int main(int argc, char** argv) {
  const double rank_steps = argc > 1 ? std::atof(argv[1]) : 1e7;
  const int runs = argc > 2 ? std::atoi(argv[2]) : 200;
  for (const World& world : kWorlds) {
    for (const Luck luck : kLucks) {
      for (const double noise : kNoises) {
        measure_false_names(world, noise, luck, rank_steps);
        for (const double times : kSlowdowns) {
          measure_recall(world, noise, luck, times, false, runs);
          measure_recall(world, noise, luck, times, true, runs);
        }
      }
    }
  }
  return 0;
}
