// SPDX-License-Identifier: Apache-2.0
// Files that survive a crash at any instruction. Every function names the path in its error.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

// Reads a whole file; more than `max_bytes` is kInvalidArgument (input is untrusted and bounded).
Result<std::string> read_file(const std::string& path, size_t max_bytes = 64U << 20);

// Likewise; nullopt where there is no such file, as entry_exists() proves it.
Result<std::optional<std::string>> read_file_if_there(const std::string& path,
                                                      size_t max_bytes = 64U << 20);

// From the descriptor's position to the end.
Result<std::string> read_all(int fd, const std::string& path_for_errors, size_t max_bytes);

// Writes all of `data` at the descriptor's position, continuing after short writes and EINTR.
Outcome write_all(int fd, std::string_view data, const std::string& path_for_errors);

// Replaces `path` with `data`: temporary in the same directory, fsync, rename, fsync directory.
// After a crash the old or the new content is there, never a part.
Outcome write_file_atomic(const std::string& path, std::string_view data);

// Creates `path` with `data` if and only if it does not exist: temporary, fsync, link(), fsync
// directory; atomic against racing creators on local disks, NFS and Lustre.
// kAlreadyExists when another creator won.
Outcome create_file_exclusive(const std::string& path, std::string_view data);

// mkdir -p. Existing directories are left as they are.
Outcome make_directories(const std::string& path, unsigned mode = 0777);

// mkdir -p of what is below `root`, never of `root` itself: who has not created that must not make
// it again, where it was deleted or its file system is away. kNotFound: it is gone. Precondition:
// `path` is `root`, or below it.
Outcome make_directories_below(const std::string& root, const std::string& path,
                               unsigned mode = 0777);
// The directory that `path` lies in, and none above that.
Outcome make_directory_of(const std::string& path);

// Makes the directory entry changes under `path` durable.
Outcome sync_directory(const std::string& path);

// Names in a directory except "." and "..", sorted bytewise: all of them, or an error. kNotFound:
// there is no such directory.
Result<std::vector<std::string>> list_directory(const std::string& path);

// Likewise; no names where there is no such directory, as entry_exists() proves it.
Result<std::vector<std::string>> list_directory_if_there(const std::string& path);

// Removes a tree; a missing tree is fine.
Outcome remove_tree(const std::string& path);

// False only where the file system says that there is nothing of that name. Where it cannot tell
// (an I/O error, a stale handle, a missing right) that is an error, never "no": what is shared may
// be there for others.
Result<bool> path_exists(const std::string& path);

// The same, but "no" is proven: the directory of the entry was opened again, and its listing does
// not have the entry. An NFS client may answer a lookup of a name from a stale cache; it queries
// the server when a directory is opened. kStorage if lookup and listing disagree: wait, and ask
// again.
Result<bool> entry_exists(const std::string& path);

// Returns whether this process can reach it now: for local files and for hints, never to decide
// that a shared file is gone.
bool is_accessible(const std::string& path);

// Takes an exclusive flock on `path` (created 0600 when missing) without waiting; the lock lasts
// as long as the descriptor. kAlreadyExists when another process holds it.
Result<UniqueFd> lock_file(const std::string& path);

// Likewise on a directory that is there and no link. Invalid where another process has it, or where
// it cannot be opened or locked.
UniqueFd lock_directory(const std::string& path);

}  // namespace hpctl
