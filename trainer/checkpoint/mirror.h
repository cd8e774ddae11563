// SPDX-License-Identifier: Apache-2.0
// A mirror: a second directory with the generation records and the newest checkpoints of the first
// one. Its lineage is decided by its own records, so it serves without the first place.
//
//   MIRROR/owner.json, generations/G.json, step-N.gG/   as in a checkpoint directory
//   MIRROR/mirror.json                                  which directory it mirrors, by device and
//                                                       inode
//
// A copy gets its manifest last: after every file was compared with its checksum while it was
// read, made durable, and read again past the page cache. A copy that was interrupted has no
// manifest. The next order continues it, or it goes with older copies. docs/formats.md gives the
// bytes.
//
// Nothing here deletes what one reader finds unfinished, damaged or undone: such a finding may be
// the reader's own fault. Files are only replaced by what the source has, and undone copies are set
// aside. The exception names what was verified before: remove_leftovers().
//
// Everything here blocks on storage. One caller at a time per mirror.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/lineage.h"

namespace hpctl {

// Creates in `to` the generation records that only `from` has. kDataLoss: both have a record of
// one generation, and they differ.
Outcome copy_lineage(const std::string& from, const std::string& to);

struct MirrorCopyOrder {
  uint64_t bytes_per_second = 0;                        // 0 = without a limit
  std::function<bool()> goes_on = [] { return true; };  // false = stop, between two pieces
};

// Copies checkpoint `name` from directory `from` to directory `to`; a manifest of the same bytes
// means that it is there already; one with another manifest is of steps that were undone, and is
// set aside. Returns the bytes read. kDataLoss: the source is damaged, and the message names the
// file; kNotFound: the source is gone; kUnavailable: goes_on() returned false.
Result<uint64_t> copy_checkpoint(const std::string& from, const std::string& to,
                                 const std::string& name, const MirrorCopyOrder& order);

// Returns whether both directories have this checkpoint with the same manifest.
Result<bool> is_copied(const std::string& from, const std::string& to, const std::string& name);

// For a mirror without any whole copy, where retention has nothing that could remain: what is
// without a manifest and older than `verified`, and what was set aside. Precondition of the
// removal: another reader has found `verified` sound, which is a checkpoint of the first place.
Result<std::vector<std::string>> list_leftovers(const std::string& mirror,
                                                const CheckpointRef& verified);
Outcome remove_leftovers(const std::string& mirror, const CheckpointRef& verified);

// The newest checkpoint in the mirror that is valid on the chain of the newest of `records`. A
// checkpoint that is damaged in the first place may be sound here: only names that begin with the
// mirror's path, in `exclude` or as recorded damage, are left out.
Result<std::optional<CheckpointRef>> latest_in_mirror(const std::string& mirror,
                                                      const std::vector<GenerationRecord>& records,
                                                      const std::vector<std::string>& exclude);

// Writes mirror.json, or leaves it as it is.
Outcome remember_first_place(const std::string& mirror, const std::string& first);
// Returns whether `first` is the very directory that was mirrored, and not the mount point of an
// absent mount.
Result<bool> is_first_place(const std::string& mirror, const std::string& first);

// kInvalidArgument: both are one directory, or one is inside the other, by device and inode. A
// missing directory is judged by its nearest existing parent.
Outcome check_apart(const std::string& first, const std::string& mirror);

}  // namespace hpctl
