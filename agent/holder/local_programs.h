// SPDX-License-Identifier: Apache-2.0
// A node-local copy of the running program, if its own file is on a file server. A page fault in
// its text would otherwise wait for that server, and a holder that waits counts as hung.
//
//   /tmp/hpctl-UID/programs/ID/bin/hpagent    as RELEASE/bin/hpagent
//                          /ID/lib/...        libraries of the release, where it has its own
//
// ID is a hash over the bytes of all files, so jobs of one user and one release share a copy. Every
// start compares the copy with the original. A process that runs from a copy keeps a shared lock on
// its directory. A process that makes a copy removes copies without a lock.
//
// Only hpagent is copied, which is holder, agent and reaper. The other programs that it starts
// have no liveness deadline and stay where they are (decision 0304).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl::holder {

// Returns whether the file system with `path` is on this machine. An unknown one counts as shared.
bool is_on_local_disk(const std::string& path);

// Files that make up the running program: itself first, then its data files and what it has mapped
// of the same release, that is below the parent of its directory. An error where the program runs
// by another loader than the system's: such a release finds its files by their place.
Result<std::vector<std::string>> files_of_running_program();

struct LocalCopy {
  std::string program;  // the copy of files.front()
  // The lock; stays open over an exec.
  UniqueFd in_use;
};

// Copies `files`, or finds them copied, below `base`, which is a directory of this user alone. Each
// keeps its place below the parent of the directory of files.front(). Waits while another process
// copies there.
Result<LocalCopy> copy_programs(const std::vector<std::string>& files, const std::string& base);

// Executes the running program again from a local copy, with `argv`, if its file is on a file
// server. Returns otherwise, and where that is impossible: it has logged why.
void run_from_local_copy(std::vector<std::string> argv);

}  // namespace hpctl::holder
