// SPDX-License-Identifier: Apache-2.0
// Who holds the others up, by what the flight recorders of a job's ranks had recorded. Pure.
//
// Of each process group the first collective is looked for that somebody began and did not
// complete. Then, in words and in the order of what they prove:
//   - ranks that called something else there or before (another collective, type of data, number of
//     elements) than most: what follows cannot match;
//   - ranks that have not begun it, and whose absence nothing explains: they do not wait themselves
//     in a group in which somebody is absent;
//   - ranks that have not completed it when as many others have: their device or its links.
// The first of these that there are are blamed.
// Where most ranks are absent, where ranks wait for each other in a circle, or where all have begun
// the same and none has completed it, nobody is blamed, and it is said why.
//
// What is not known is not guessed: a rank without a dump is named and never blamed.
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
