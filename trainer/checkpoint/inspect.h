// SPDX-License-Identifier: Apache-2.0
// Questions about checkpoints at rest: which are there and count, is one undamaged, are two the
// same. Used by `hpctl checkpoint` and by tests; nothing here writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/lineage.h"
#include "trainer/checkpoint/chains.h"
#include "trainer/checkpoint/manifest.h"

namespace hpctl {

enum class CheckpointState {
  kValid,       // complete and on the surviving history
  kStale,       // complete, but a later generation started before it
  kForeign,     // complete and valid on a chain that is not the newest: no job resumes from it
  kIncomplete,  // no manifest: interrupted, or being written now
  kDamaged,     // manifest unreadable, a file missing or cut, or recorded as damaged
};
const char* to_string(CheckpointState state);  // "valid", "stale", "foreign", "incomplete", ...

struct CheckpointListing {
  CheckpointRef ref;
  CheckpointState state = CheckpointState::kIncomplete;
  std::string detail;           // one line, "" when valid
  uint64_t bytes = 0;           // of all its files, as they are now
  uint64_t chain = 0;           // its chain (trainer/checkpoint/chains.h); 0 = of no record
  int32_t world_size = 0;       // 0 = unknown
  int64_t created_wall_ms = 0;  // 0 = unknown
};

// All step-N.gG directories of all chains, ascending. Looks at manifests and file sizes, not at
// contents.
Result<std::vector<CheckpointListing>> list_checkpoint_states(const std::string& checkpoint_dir);
// Likewise where the records have been read.
Result<std::vector<CheckpointListing>> list_checkpoint_states(
    const std::string& checkpoint_dir, const std::vector<CheckpointChain>& chains);

// The one that a resume takes: the newest valid one. nullptr: none is valid.
const CheckpointListing* find_resumed(const std::vector<CheckpointListing>& listings);

// `path` is a step-N.gG directory, or a checkpoint directory whose newest valid checkpoint is
// meant. Returns the step directory's path. kNotFound with the remedy otherwise.
Result<std::string> resolve_checkpoint(const std::string& path);

// A job, to select its own checkpoints among those in the directory.
struct JobOfRecords {
  uint64_t job = 0;
  std::string name;
  std::string uuid;  // "" = of a release that gave none
};
// The chain of the newest generation that this job recorded. Empty: the directory has no records.
// kNotFound: they are other jobs'.
Result<std::vector<GenerationRecord>> chain_of_job(const std::string& checkpoint_dir,
                                                   const JobOfRecords& job);
// Path of the newest valid checkpoint of that chain.
Result<std::string> resolve_checkpoint_of(const std::string& checkpoint_dir,
                                          const JobOfRecords& job);

struct VerifyReport {
  uint64_t bytes = 0;                 // read and compared
  uint64_t ranges = 0;                // stored ranges verified
  std::vector<std::string> problems;  // each names file, range, offset; empty = undamaged
};
// Reads every byte. An error (instead of problems) means that the manifest itself cannot be used.
Result<VerifyReport> verify_checkpoint(const std::string& step_dir);

// 64 hex digits over all tensors, parameters and moments, in bytewise name order, then step,
// sample cursor, skip list and stability record; nothing about generation, time, layout or world
// size (byte framing in docs/formats.md). Verifies all checksums first; a damaged checkpoint is an
// error. Streams.
Result<std::string> digest_checkpoint(const std::string& step_dir);

struct TensorDifference {
  std::string name;       // parameter or moment, as in the digest
  std::string what;       // "only in the first", "another shape", "other values", ...
  int64_t numel = 0;      // elements compared
  int64_t differing = 0;  // elements whose bytes differ
  int64_t first = 0;      // index of the first of them
  double max_abs = 0;     // largest difference of values
};
struct DiffReport {
  uint64_t tensors = 0;       // compared, or present on one side
  bool same_position = true;  // step, cursor, skip list, stability
  std::vector<TensorDifference> differences;

  bool same() const { return same_position && differences.empty(); }
};
// Same exactly when the digests are the same. Both are verified first.
Result<DiffReport> diff_checkpoints(const std::string& step_dir_a, const std::string& step_dir_b);

// {"step","generation","parent","world_size","sample_cursor","skipped"}, one line.
std::string show_json(const Manifest& manifest);

}  // namespace hpctl
