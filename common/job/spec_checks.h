// SPDX-License-Identifier: Apache-2.0
// Collects what is wrong in a job; used by find_problems() and its parts.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/base/printable.h"
#include "common/job/job_spec.h"

namespace hpctl {

inline constexpr int64_t kMaxSteps = int64_t{1} << 40;

// Every check returns true when the value is good.
class SpecChecks {
 public:
  bool fail(const std::string& key, const std::string& message) {
    problems_.push_back(SpecProblem{key, printable_line(message, kShownBytes)});
    return false;
  }

  bool range(const std::string& key, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return true;
    const std::string expected = high == kNoLimit
                                     ? "at least " + std::to_string(low)
                                     : std::to_string(low) + " to " + std::to_string(high);
    return fail(key, "expected " + expected + ", found " + std::to_string(value));
  }
  bool at_least(const std::string& key, int64_t value, int64_t low) {
    return range(key, value, low, kNoLimit);
  }

  bool number(const std::string& key, double value, double low, double high) {
    if (value >= low && value <= high) return true;
    return fail(key, "expected a number from " + text(low) + " to " + text(high) + ", found " +
                         text(value));
  }

  bool one_of(const std::string& key, const std::string& value,
              const std::vector<std::string>& allowed) {
    std::string list;
    for (const auto& word : allowed) {
      if (word == value) return true;
      list += (list.empty() ? "" : ", ") + word;
    }
    return fail(key, (allowed.size() == 1 ? "expected " : "expected one of ") + list +
                         "; found \"" + value + "\"");
  }

  std::vector<SpecProblem> take() { return std::move(problems_); }

 private:
  static constexpr size_t kShownBytes = 2000;  // of a message, which quotes the document
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  static std::string text(double value) {
    std::array<char, 32> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "%.9g", value);
    return buffer.data();
  }

  std::vector<SpecProblem> problems_;
};

// The workers of a job.
struct WorkerCounts {
  int64_t world_size = 0;  // nodes x workers_per_node; 0 = not known
  int64_t per_node = 0;    // likewise
  bool is_auto = false;    // each node decides how many it has
  bool has_gpus = false;   // slurm.gres asks for GPUs
};

// The part of find_problems() about workload.train.
void check_train(const TrainSpec& train, WorkerCounts workers, SpecChecks& checks);
// The part about workload.train.parallelism.*_parallel_degree.
void check_degrees(const TrainSpec& train, WorkerCounts workers, SpecChecks& checks);
// The part about notify.
void check_notify(const NotifySpec& notify, SpecChecks& checks);
// The part about slurm.
void check_slurm(const SlurmSpec& slurm, SpecChecks& checks);

}  // namespace hpctl
