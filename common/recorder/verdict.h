// SPDX-License-Identifier: Apache-2.0
// The ranks that the others wait for, by the flight recorders of a job's ranks. Pure.
//
// For each process group, the first collective is found that some rank began and did not complete.
// Then these ranks are named, in the order of the strength of the proof:
// - ranks that called something else there or before (another collective, type of data, number of
//   elements) than most: later collectives cannot match;
// - ranks that have not begun it, with an unexplained absence: they do not wait themselves in a
//   group with an absent rank;
// - ranks that have not completed it when as many others have: their device or its links.
//
// The first of these sets that is not empty gets the blame. If most ranks are absent, if ranks wait
// for each other in a circle, or if all have begun the same and none has completed it, no rank is
// blamed, and the text gives the reason.
//
// Unknown facts are not guessed: a rank without a dump is named and never blamed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/recorder/dump.h"

namespace hpctl::recorder {

struct Verdict {
  std::vector<int32_t> blamed;        // ascending
  std::vector<std::string> findings;  // of the groups in which somebody waits, a sentence each
  std::string conclusion;             // one sentence
  std::vector<int32_t> silent;        // members of groups without a dump, ascending
};

// The dumps of one hang, by rank of the job.
Verdict judge(const std::map<int32_t, RankDump>& dumps);

// "rank 3", "ranks 0-3, 7"
std::string ranks_text(const std::vector<int32_t>& ranks);

}  // namespace hpctl::recorder
