// SPDX-License-Identifier: Apache-2.0
// The faults that `hpctl chaos` injects, and when: from a file or from options. The same seed gives
// the same faults at the same moments, and on the same members of a job the same targets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/worker/injected_fault.h"

namespace hpctl {

struct PlannedFault {
  InjectedFault fault = {};
  std::optional<int32_t> rank;      // of a worker's fault; else one is chosen
  std::string node;                 // of a node's fault; "" = one is chosen
  uint64_t draw = 0;                // chooses, of those that are there
  std::optional<uint64_t> at_step;  // once this step is completed
  // After the job trains, for the first time or again; none of the two: at once.
  int64_t after_ms = 0;
  std::string where;  // it stands in the plan; for messages
};

inline constexpr int64_t kMaxPlannedFaults = 10'000;

struct ChaosPlan {
  uint64_t seed = 1;
  int64_t recover_within_ms = 120'000;  // else a fault counts as not survived
  std::vector<PlannedFault> faults;
};

// An error has a line for each mistake, "FILE:LINE:COLUMN: KEY: MESSAGE\n".
Result<ChaosPlan> parse_chaos_plan(std::string_view text, const std::string& file);
Result<ChaosPlan> load_chaos_plan(const std::string& path);

// `count` faults, each one of `words` ("kill-worker,stop-worker"), with random pauses of `every_ms`
// in the mean.
Result<ChaosPlan> make_chaos_plan(const std::string& words, int64_t every_ms, int64_t count,
                                  uint64_t seed);

}  // namespace hpctl
