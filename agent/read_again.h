// SPDX-License-Identifier: Apache-2.0
// What `hpagent confirm` does: it reads again what a worker of another node called damaged, as the
// second of two readers (decision 0112), or the newest checkpoint before older ones are deleted
// (decision 1308). A process of its own, because the file server may not answer and the agent's own
// thread has a liveness deadline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/file_fault.h"

namespace hpctl::agent {

struct ReadingOrder {
  std::string directory;    // checkpoint.dir, or the directory of a checkpoint elsewhere
  std::string checkpoint;   // name in it
  uint64_t generation = 0;  // of the job's newest record; 0 = the checkpoint is elsewhere
  FileFault part;           // of a claim of damage
  std::string words;        // likewise: of the worker
  std::string depth;        // a word of VerifyDepth; "" = a claim: only that part is read
};

// What is damaged; "" = nothing is. An error: it cannot be read now, which proves nothing. The
// record of the generation must be there before and after: a directory that has gone away as a
// whole, or is another one than the job's, shows no damage of a part. For a checkpoint elsewhere
// check_path_in_place() says what must be there.
Result<std::string> read_again(const ReadingOrder& order);

// The first word of the line that it prints; the others say what is damaged, or why it cannot be
// read.
inline constexpr char kSaysSound[] = "sound";
inline constexpr char kSaysDamaged[] = "damaged";
inline constexpr char kSaysUnreadable[] = "unreadable";

// `hpagent confirm DIRECTORY CHECKPOINT GENERATION FILE OFFSET BYTES WORDS DEPTH`; the exit code.
int run_confirm(const std::vector<std::string>& arguments);

}  // namespace hpctl::agent
