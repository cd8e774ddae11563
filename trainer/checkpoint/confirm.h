// SPDX-License-Identifier: Apache-2.0
// Reads a committed checkpoint again: before an older one is deleted, and when a worker has
// reported damage. The reader is neither the process that wrote it nor the one that reported it,
// and the bytes come from storage: each file is opened again and leaves the page cache of this
// machine before it is read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/file_fault.h"
#include "common/job/job_spec.h"
#include "trainer/checkpoint/manifest.h"

namespace hpctl {

// Ok: the checkpoint in `step_dir` (a path) is sound as far as `depth` looks. kDataLoss: it is
// damaged; the message names the file. kUnavailable: goes_on() returned false. Other errors: a file
// could not be read now. Blocks on storage, and calls goes_on() before each read of at most 4 MiB.
Outcome confirm_checkpoint(const std::string& step_dir, VerifyDepth depth,
                           const std::function<bool()>& goes_on);

// The same for a copy without a manifest: its files must match `manifest`.
Outcome confirm_files(const std::string& step_dir, const Manifest& manifest, VerifyDepth depth,
                      const std::function<bool()>& goes_on);

// Reads only what another reader claims to be damaged: `part`; or, if that names no file of the
// checkpoint, what its words name: stored ranges, else files, else everything. Returns what is
// damaged; "" = nothing is. An error: it cannot be read now, which proves nothing.
Result<std::string> confirm_damage(const std::string& step_dir, const std::string& words,
                                   const FileFault& part = {});

// Ok: the directory of the job is in place, by the record of its newest generation. kStorage: it
// may be away as a whole, so a file that is missing there proves nothing.
Outcome check_in_place(const std::string& checkpoint_dir, uint64_t generation);

// The same for a checkpoint elsewhere (a path), by the record of the checkpoint's own generation,
// or by the checkpoint's directory.
Outcome check_path_in_place(const std::string& step_dir);

// Indices below `count` of the stored ranges of shard `file` that a sample reads, ascending. A
// function of its arguments, so every reader of a checkpoint reads the same ranges.
std::vector<size_t> sampled_ranges(const CheckpointRef& checkpoint, size_t file, size_t count);

}  // namespace hpctl
