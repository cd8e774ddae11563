// SPDX-License-Identifier: Apache-2.0
// Trainers beside each other. Those that are compared run in turn, in several rounds, so that what
// else the machine does meets all of them alike. Quoted are medians over the rounds, and the median
// of how much faster one was than the first within a round.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "tests/bench/trainer_runs.h"

namespace hpctl {

struct Contestant {
  std::string name;
  std::function<Run()> run;
};

struct Comparison {
  // What a step of theirs is made of.
  int workers = 0;
  int64_t tokens = 0;     // of a sequence
  int64_t sequences = 0;  // of each worker
  // There is one, with which the others are compared.
  std::vector<Contestant> contestants;
};

// Prints one table, a line for each contestant, and appends what it says to `cases`. There is a
// comparison, and all have the same first contestant. Where a run failed, false, and no figures of
// that comparison.
bool compare_in_turn(const std::vector<Comparison>& comparisons, nlohmann::ordered_json& cases);

}  // namespace hpctl
