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
// manifest. The next one continues it, or removes it. docs/formats.md gives the bytes.
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
// means that it is there already. Returns the bytes read. kDataLoss: the source is damaged, and the
// message names the file; kNotFound: the source is gone; kUnavailable: goes_on() returned false.
Result<uint64_t> copy_checkpoint(const std::string& from, const std::string& to,
                                 const std::string& name, const MirrorCopyOrder& order);

// Returns whether both directories have this checkpoint with the same manifest.
Result<bool> is_copied(const std::string& from, const std::string& to, const std::string& name);

// Removes copies without a manifest, except `kept`.
Outcome remove_unfinished_copies(const std::string& mirror, const std::string& kept);

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
