// SPDX-License-Identifier: Apache-2.0
// The failures of a long run, by cause, as the source of faults: a count for each cause, and the
// length of the run. Faults come at random with these shares and this rate, made faster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/worker/injected_fault.h"
#include "hpctl/plan_yaml.h"

namespace hpctl {

struct TraceCause {
  std::string cause;  // for people
  int64_t count = 0;
  std::vector<InjectedFault> faults;  // what it looks like to hpctl; one of them, at random
};

struct FailureTrace {
  int64_t period_ms = 0;  // in which all of these happened
  int64_t faster = 1;     // pauses are shorter by this factor
  int64_t count = 0;      // faults that are wanted; 0 = as many as happened
  std::vector<TraceCause> causes;

  int64_t total() const;
  int64_t wanted() const { return count > 0 ? count : total(); }
};

struct TracedFault {
  InjectedFault fault = {};
  std::string cause;
  int64_t pause_ms = 0;
};

// `node` is the value of the key at `path`.
void read_failure_trace(PlanYaml& yaml, const YAML::Node& node, const std::string& path,
                        FailureTrace& trace);

// The next one. Precondition: the trace was read without a problem.
TracedFault draw_fault(const FailureTrace& trace, Rng& rng);

// Exponentially distributed: how long a fault with this mean time between faults takes to come.
int64_t random_pause_ms(Rng& rng, double mean_ms);

}  // namespace hpctl
