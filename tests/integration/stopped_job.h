// SPDX-License-Identifier: Apache-2.0
// What a training job that was stopped has completed, and what of it is on disk.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "common/base/json.h"
#include "common/job/lineage.h"

namespace hpctl::testing {

// The newest step that rank 0 wrote down; 0 = none.
inline uint64_t last_step_in(const std::string& metrics_path) {
  std::ifstream lines(metrics_path);
  uint64_t last = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
    if (parsed.is_object() && parsed.contains("loss")) {
      last = std::max(last, parsed.value("step", uint64_t{0}));
    }
  }
  return last;
}

// Completed steps that a later generation has trained again, since they were lost.
inline uint64_t steps_done_again_in(const std::string& metrics_path) {
  std::ifstream lines(metrics_path);
  uint64_t last = 0;
  uint64_t again = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_object() || !parsed.contains("loss")) continue;
    const auto step = parsed.value("step", uint64_t{0});
    again += step <= last ? 1 : 0;
    last = std::max(last, step);
  }
  return again;
}

// Of the newest checkpoint that a job would resume from; 0 = there is none.
inline uint64_t saved_step_in(const std::string& checkpoints) {
  const auto found = list_checkpoints(checkpoints);
  const auto records = read_lineage(checkpoints);
  EXPECT_TRUE(records.ok()) << records.error().message;
  if (!found.ok() || !records.ok()) return 0;
  const auto chain = chain_of_newest(*records);
  uint64_t newest = 0;
  for (const CheckpointRef& checkpoint : *found) {
    if (valid_by_lineage(checkpoint, chain)) newest = std::max(newest, checkpoint.step);
  }
  return newest;
}

}  // namespace hpctl::testing
