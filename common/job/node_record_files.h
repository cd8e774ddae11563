// SPDX-License-Identifier: Apache-2.0
// The records of a directory (node_record.h), read again and again; a second look reads only the
// changes in between. 200 controllers of one home look once a minute each, and only a few of
// thousands of files have changed.
//
// Each look lists the directory and reads the attributes of its files, which a network file system
// sends along with the list. A file is unchanged if device, inode, size, mtime and ctime are: an
// append changes the size, a file that was renamed over it has another inode, an overwritten one
// another ctime. The attributes are taken before the file is read, so a change during the read
// causes one more read. A network file system that caches attributes for a while (acregmax of NFS:
// a minute) shows a change at the look after.
//
// Blocks if the file system does. Not for several threads at once.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/job/node_record.h"

namespace hpctl {

class NodeRecordFiles {
 public:
  static constexpr size_t kMaxFiles = 4'096;
  static constexpr size_t kMaxFileBytes = 1U << 20;
  // The size of the files of the newest jobs that are kept in memory; the files of other jobs are
  // read at each look.
  static constexpr size_t kMaxKeptBytes = 16U << 20;

  explicit NodeRecordFiles(std::string directory) : directory_(std::move(directory)) {}

  // The records of all jobs. Unreadable files are left out: a score is never a reason to stop. At
  // most kMaxFiles, from the newest jobs, of at most kMaxFileBytes each.
  std::vector<NodeRecord> look();

  // So many files the last look has opened.
  size_t opened() const { return opened_; }

 private:
  // Equal if the file is unchanged.
  struct Identity {
    explicit Identity(const struct stat& status);
    bool operator==(const Identity&) const = default;
    uint64_t device;
    uint64_t inode;
    int64_t size;
    int64_t modified_ns;
    int64_t changed_ns;
  };
  struct Kept {
    Identity identity;
    std::vector<NodeRecord> records;
  };
  std::vector<std::string> newest_files() const;

  const std::string directory_;
  std::map<std::string, Kept> kept_;  // by name
  size_t opened_ = 0;
};

}  // namespace hpctl
