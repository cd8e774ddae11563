// SPDX-License-Identifier: Apache-2.0
// PyTorch's flight recordings of a job's hangs, read from the job's directory, where hpstacks has
// put the dumps (agent/stacks/recorders.h).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/recorder/verdict.h"

namespace hpctl {

struct RecordedHang {
  uint64_t generation = 0;
  std::string files;                    // a pattern for people
  std::vector<int32_t> ranks;           // whose dump was read
  std::vector<std::string> unreadable;  // "PATH: why"
  recorder::Verdict verdict;
};

// The hangs of these generations with dumps, ascending.
std::vector<RecordedHang> recorded_hangs(const std::string& stacks_directory,
                                         const std::set<uint64_t>& generations);

}  // namespace hpctl
