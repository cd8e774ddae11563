// SPDX-License-Identifier: Apache-2.0
// Whole runs of hptrain, without controller and agent, and of Python scripts that train the same
// model, for benchmarks: all ranks on this machine, in a directory that is gone afterwards.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/worker/workload.h"

namespace hpctl {

constexpr int kBenchSteps = 30;
constexpr int kBenchTokens = 128;  // of a sequence

struct Run {
  bool good = true;  // all ranks ended with 0
  // Medians of steps after the second: the first touch their memory for the first time.
  double step_ms = 0;
  double comm_ms = 0;
  double data_ms = 0;   // waited for samples; largest of these steps, not their median
  double peak_mib = 0;  // largest resident set of any rank
  double cpu_ms = 0;    // of all ranks from beginning to end, as are the page faults
  double faults = 0;    // that read nothing from a disk
  std::map<std::string, double> phases;  // of rank 0's start: what was done, ms after exec
};

// The debugmodel in fp32 with kBenchSteps steps of one sequence per worker, and no checkpoints;
// `change` adapts that.
Run run_hptrain(const std::string& program, int world_size,
                const std::function<void(Workload&)>& change);

// PYTHON SCRIPT TEXT OUT ARGUMENTS..., once for each rank, with the environment that torchrun gives
// a worker. TEXT is what run_hptrain reads, in one file. The script appends a line of JSON per step
// to OUT/metrics.jsonl.
Run run_python(const std::string& python, const std::string& script, int world_size,
               const std::vector<std::string>& arguments);

}  // namespace hpctl
