// SPDX-License-Identifier: Apache-2.0
// The second place for checkpoints in memory, with the rules of controller/engine/mirror.h: records
// before copies, a copy of the newest valid checkpoint, and retention by the mirror's own records.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/core/core.h"
#include "tests/sim/directory.h"

namespace hpctl::sim {

struct CopyRun {
  size_t keep = 1;
  bool is_cut = false;  // the copy ends before it is complete
  int64_t now_ms = 0;
};

struct Copied {
  std::string failure;  // what ActionFailed says; "" = the order was carried out
  std::string name;     // the newest checkpoint that the mirror holds; "" = none
  uint64_t step = 0;
  bool is_new = false;
  std::vector<std::string> deleted;
  std::string problem;    // why the newest checkpoint was not copied
  std::string verified;   // a path, as CheckpointMirrored has it
  std::string to_verify;  // likewise
};

// Whether the core has said that this copy is of steps that were undone.
bool is_undone(const CheckpointRef& ref, const core::UndoneSteps& undone);

class Mirror {
 public:
  // `path` = checkpoint.mirror.dir; "" = the job has no mirror.
  explicit Mirror(std::string path = "") : path_(std::move(path)) {}

  bool exists() const { return !path_.empty(); }
  // As mirror_checkpoint(). Both places can be read.
  Copied copy(Directory& first, const core::MirrorCheckpoint& order, const CopyRun& run);
  // As find_in_mirror(); the name is a path. The lineage is that of `first` unless it is away.
  Found find(const Directory& first, const core::FindCheckpoint& order) const;
  // Gives the first place the records back that only the mirror has. False: the mirror lacks the
  // record of generation `newest`.
  bool give_back(Directory& first, uint64_t newest) const;
  // The newest whole copy that is valid on the chain of `records`. `exclude`: paths.
  std::optional<CheckpointRef> latest(const std::vector<GenerationRecord>& records,
                                      const std::vector<std::string>& exclude) const;

  std::string path_of(const CheckpointRef& ref) const { return path_ + "/" + ref.name(); }
  // Of a path in the mirror, complete or not.
  std::optional<CheckpointRef> ref_of(const std::string& path) const;
  // nullptr: there is no whole copy of that path.
  const StoredCheckpoint* checkpoint(const std::string& path) const;
  std::string confirm(const std::string& path) const;

  Directory& directory() { return copies_; }
  const Directory& directory() const { return copies_; }
  const std::set<CheckpointRef>& unfinished() const { return unfinished_; }

 private:
  void copy_newest(const Directory& first, const CheckpointRef& source, const CopyRun& run,
                   Copied& done);
  // `verified`: a copy's path, or "".
  void prune(const core::MirrorCheckpoint& order, const std::string& verified, size_t keep,
             Copied& done);

  std::string path_;
  Directory copies_;
  std::set<CheckpointRef> unfinished_;
};

}  // namespace hpctl::sim
