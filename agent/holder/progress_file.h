// SPDX-License-Identifier: Apache-2.0
// HPCTL_PROGRESS_FILE: the file in which a program other than the built-in trainer reports its
// step. It writes lines "STEP [TOKENS]", one after each optimizer step; the last complete line
// counts. STEP is a positive number that rises; TOKENS is how many tokens the whole job trained on
// in that step. The file may be appended to, rewritten or replaced. The duration of a step is the
// time between two changes of the file.
//
// It lies on the node's local disk, in a directory of the job: the agent, or the shim of a Slurm
// step's task, reads it on its one thread, and must not wait for a shared file system. The program
// is not trusted: reading is bounded, and unreadable lines are left out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/progress.h"
#include "common/base/plausible.h"
#include "common/base/result.h"

namespace hpctl::agent {

std::string progress_file_path(const std::string& directory, uint64_t generation, int32_t rank);

// Makes the files of these ranks, empty unless they are there; what other generations left on this
// node goes.
Outcome prepare_progress_files(const std::string& directory, uint64_t generation,
                               const std::vector<int32_t>& ranks);

// After the worker has ended.
void remove_progress_file(const std::string& directory, uint64_t generation, int32_t rank);

class ProgressFile {
 public:
  explicit ProgressFile(std::string path) : path_(std::move(path)) {}

  // The content of the file; `damaged` if its last line is not as above. Reads it only when it has
  // changed.
  const ProgressSample& sample();

 private:
  struct Version {
    ino_t inode = 0;
    off_t size = 0;
    UnixTime changed;
    bool operator==(const Version&) const = default;
  };

  static UnixTime changed_at(const timespec& time);
  void take(const std::string& text, bool from_start, const Version& version);

  std::string path_;
  Version version_;
  UnixTime stepped_;  // when the present step was written
  ProgressSample sample_;
};

}  // namespace hpctl::agent
