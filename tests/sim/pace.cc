// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/pace.h"

#include <algorithm>

#include "controller/core/core.h"
#include "controller/core/straggler.h"
#include "controller/core/types.h"

namespace hpctl::sim {

namespace {

constexpr double kLongTimes = 4;
constexpr double kAllSlowTimes = 1.5;
// Of the usual part: it is worth something beside a step that another node makes long.
constexpr double kWorthNaming = 1.6;
constexpr double kQuietNoise = 0.05;

SlowPart draw_part(Rng& rng, int32_t nodes, int32_t workers_per_node, uint64_t steps) {
  SlowPart part;
  part.node = core::local_node_name(static_cast<int32_t>(rng.below(static_cast<uint64_t>(nodes))));
  if (rng.below(2) == 0) {
    part.local_rank = static_cast<int32_t>(rng.below(static_cast<uint64_t>(workers_per_node)));
  }
  part.times = 1.1 + 2.9 * rng.uniform();
  part.from = rng.below(2) == 0 ? 0 : rng.below(steps / 2 + 1);
  const uint64_t kind = rng.below(4);  // for ever, for long, or for a moment
  if (kind == 2) part.until = part.from + 25 + rng.below(steps / 2 + 1);
  if (kind == 3) part.until = part.from + 1 + rng.below(8);
  return part;
}

}  // namespace

double Pace::slowness(const std::string& node, int32_t local_rank, uint64_t step) const {
  double times = 1;
  for (const SlowPart& part : slow) {
    const bool is_here =
        part.node == node && (part.local_rank < 0 || part.local_rank == local_rank);
    if (is_here && part.from <= step && step < part.until) times = std::max(times, part.times);
  }
  return times;
}

double Pace::share(uint64_t generation, const std::string& node, int32_t local_rank, int32_t rank,
                   uint64_t step) const {
  Rng luck(mix64(mix64(mix64(seed ^ generation) ^ static_cast<uint64_t>(rank)) ^ step));
  double times = slowness(node, local_rank, step) * (1 + noise * (2 * luck.uniform() - 1));
  if (luck.chance(long_step)) times = std::max(times, kLongTimes);
  if (are_all_slow(step)) times *= kAllSlowTimes;
  return times;
}

// The medians of a round are within the noise, so the others' distances are within twice of it.
bool Pace::is_clear(double times) const {
  const double least = times * (1 - noise);
  const double most = 1 + noise;
  return times >= kWorthNaming && least >= core::kSlowRatio * most &&
         least - most >= core::kSlowSpreads * 2 * noise;
}

bool Pace::is_quiet() const { return noise <= kQuietNoise && long_step == 0; }

Pace draw_pace(Rng& rng, int32_t nodes, int32_t workers_per_node, uint64_t steps) {
  Pace pace;
  pace.is_drawn = true;
  pace.seed = rng.next();
  // Never so much that an even rank's median could be kSlowRatio of another's.
  pace.noise = (rng.below(2) == 0 ? kQuietNoise : 0.12) * rng.uniform();
  if (rng.below(4) == 0) pace.long_step = 0.01 * rng.uniform();
  if (rng.below(4) == 0) {
    pace.all_slow_from = rng.below(steps);
    pace.all_slow_until = pace.all_slow_from + 1 + rng.below(steps / 2 + 1);
  }
  for (uint64_t n = rng.below(3); n > 0; --n) {
    pace.slow.push_back(draw_part(rng, nodes, workers_per_node, steps));
  }
  return pace;
}

}  // namespace hpctl::sim
