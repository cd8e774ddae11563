// SPDX-License-Identifier: Apache-2.0
// One seed: a cluster of 64 nodes with several jobs, a phase of faults, a phase in which everything
// is healed and must converge, and the checkers over both.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tests/sim/mutant.h"

namespace hpctl::sim {

struct SeedResult {
  std::string violation;  // "" = none
  uint64_t digest = 0;    // of every event and decision; equal for equal seeds
  uint64_t events = 0;
  int64_t simulated_ms = 0;
  int finished = 0;  // jobs by outcome
  int failed = 0;
  int cancelled = 0;
  int64_t restarts = 0;
  int64_t from_memory = 0;     // of the generations that they led to
  int64_t from_mirror = 0;     // likewise
  int64_t in_mirror = 0;       // likewise: recorded there
  int64_t copies = 0;          // that the controller heard of
  int out_of_checkpoints = 0;  // jobs that failed since a person had deleted theirs
  int64_t hangs = 0;
  int64_t plain_hangs = 0;
  int64_t stragglers = 0;  // named
  int64_t stragglers_over = 0;
  int64_t evictions = 0;

  // Counts only.
  void add(const SeedResult& other) {
    events += other.events;
    simulated_ms += other.simulated_ms;
    finished += other.finished;
    failed += other.failed;
    cancelled += other.cancelled;
    restarts += other.restarts;
    from_memory += other.from_memory;
    from_mirror += other.from_mirror;
    in_mirror += other.in_mirror;
    copies += other.copies;
    out_of_checkpoints += other.out_of_checkpoints;
    hangs += other.hangs;
    plain_hangs += other.plain_hangs;
    stragglers += other.stragglers;
    stragglers_over += other.stragglers_over;
    evictions += other.evictions;
  }
};

// `mutant`: a mend that the cluster lacks, one of kMutants.
SeedResult run_seed(uint64_t seed, bool trace, Mutant mutant = Mutant::kNone);
inline constexpr std::array kMutants = {Mutant::kErrorIsAbsence, Mutant::kOneReader,
                                        Mutant::kAnyOwner, Mutant::kUnverified,
                                        Mutant::kMirrorUnverified};
// What came of all seeds, in lines that begin with "sim: ".
std::string describe(const SeedResult& sum);

}  // namespace hpctl::sim
