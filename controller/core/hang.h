// SPDX-License-Identifier: Apache-2.0
// Who is to blame for a hang, from what each rank last said of itself. Nobody is a verdict too:
// where the ranks are all alike, the cause is what they share (the network, the storage, the
// program), and a node that was blamed for it would be quarantined for nothing.
//
// In this order: ranks whose process is stopped; ranks that began fewer collectives than others,
// which wait for them inside one (of a command no collectives are known: ranks that tell steps and
// have completed fewer than others); ranks that wait uninterruptibly in the kernel. Blame falls
// only on one node: suspects on several are named, and nobody is blamed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"

namespace hpctl::core {

struct RankSight {
  Rank rank;
  std::string node;
  uint64_t pid = 0;
  uint64_t step = 0;          // completed; 0 = none is known
  uint64_t collective = 0;    // how many it began; 0 in all ranks: none is known
  std::string process_state;  // of /proc/PID/stat; "" = not known
  std::string phase;
};

struct HangVerdict {
  std::string node;  // "" = nobody
  Rank rank{-1};
  std::string evidence;
};

// Precondition: ranks is not empty. In ascending order of rank.
HangVerdict judge_hang(const std::vector<RankSight>& ranks);

}  // namespace hpctl::core
