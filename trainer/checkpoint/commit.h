// SPDX-License-Identifier: Apache-2.0
// The commit point of a checkpoint, its opposite, and what deletes old ones.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "common/job/lineage.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/shard_writer.h"

namespace hpctl {

// Makes step-N.gG exist: checks that the receipts are one per rank, that their ranges tile every
// block and kind without gap or overlap, and that every file is visible here with its size; then
// writes manifest.json (temporary, fsync, rename, fsync directory, fsync parent). `base` holds
// all but files and shards; base.world_size says how many receipts there must be.
// kAlreadyExists when it is committed already.
Outcome commit_checkpoint(const std::string& checkpoint_dir, Manifest base,
                          const std::vector<Receipt>& receipts);

// After a failed save: removes step-N.gG unless it has a manifest. Missing is fine.
Outcome abandon_checkpoint(const std::string& checkpoint_dir, const CheckpointRef& checkpoint);

// Removes the checkpoint with this name, manifest first: a crash leaves a partial save, which no
// job resumes from. A missing one is fine. Only the link of a symbolic link is removed. The caller
// checks whether it may be removed.
Outcome delete_checkpoint(const std::string& checkpoint_dir, const std::string& name);

// Takes what has the name of a checkpoint out of the history and deletes nothing: it becomes
// undone-NAME, or undone-2-NAME where that is in use, and so on. No job resumes from it, and
// delete_older_checkpoints() removes it. Durable when it returns.
Outcome set_aside(const std::string& checkpoint_dir, const std::string& name);
// The checkpoint that a directory of this name was before it was set aside; nullopt: it was not.
std::optional<CheckpointRef> parse_set_aside(const std::string& name);

struct RetentionOrder {
  uint64_t generation = 0;  // whose record must be the newest; otherwise nothing happens
  int64_t keep = 1;         // >= 1
  int64_t keep_every = 0;   // the first from each multiple on stays; 0 = none
  VerifyDepth depth = VerifyDepth::kSample;
  bool for_room = false;   // where `keep` leaves nothing to delete, keep fewer, at least one
  bool unfinished = true;  // saves of older generations without a manifest go, too
  // The directory is a mirror: no worker writes there, so what the present generation left without
  // a manifest is over, too.
  bool of_mirror = false;
  bool asks = false;  // only name the checkpoint that is to be verified first
  // Another reader has found this checkpoint sound: what is not older stays. "" = the newest one is
  // read here.
  std::string verified = {};
  std::function<bool()> goes_on = [] { return true; };  // false = stop, between two files
};

struct RetentionReport {
  std::vector<std::string> deleted;  // names of checkpoints and partial saves removed
  std::string verified;   // the checkpoint that was read again; "" = nothing was to be deleted
  std::string to_verify;  // RetentionOrder::asks: the newest valid checkpoint; "" = likewise
  std::string problem;    // why it is not sound; then nothing was deleted
  std::string refused;    // why deletion stopped, "" when it ran to its end
};

// Keeps the newest `keep` checkpoints that are valid by lineage, and the first one from each
// multiple of `keep_every` on. Deletes, manifest first: other valid ones, checkpoints of a history
// that was given up or undone, and partial saves of older generations. The newest valid checkpoint
// stays, and nothing is deleted before it was found sound: by confirm_checkpoint(), or by the other
// reader that RetentionOrder::verified is from. Checkpoints recorded as damaged stay for
// inspection, and so do the saves of another job in the directory: only generations of this job and
// of its predecessors are examined. An error: storage could not be read or written. Blocks on
// storage; one call at a time per directory.
Result<RetentionReport> delete_older_checkpoints(const std::string& checkpoint_dir,
                                                 const RetentionOrder& order);

// Takes this generation's own checkpoints after `step` out of the history, newest first, because
// going back undid them: step-N.gG becomes undone-step-N.gG, which no job resumes from. They are
// deleted by delete_older_checkpoints() after the next commit, not before: until then the state
// that training went back to may be the only other one. An error if the lineage has a newer
// generation.
Outcome undo_checkpoints(const std::string& checkpoint_dir, uint64_t generation, uint64_t step);

}  // namespace hpctl
