// SPDX-License-Identifier: Apache-2.0
// Whether the checkpoints of a training job fit where it keeps them: their size against the free
// space of the file system and the quota of the user.
//
// A quota is asked with quotactl_fd(2) (Linux 5.14): ext4, XFS and others of the kernel's own
// answer. NFS and Lustre keep quotas in ways of their own, which are not asked; project quotas of
// ext4 and XFS are part of the free space already. What cannot be asked is not told, and refuses
// nothing: a job may find less room, or more, by the time it saves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/job_spec.h"
#include "common/base/paths.h"

namespace hpctl {

struct CheckpointRoom {
  std::string directory;        // where they are kept; of a job without a number: above it
  double each = 0;              // bytes of one
  int64_t most = 0;             // at once: those kept, and one being written
  int64_t stored = 0;           // of these, what the job continues and is on the disk already
  std::optional<double> free;   // bytes of the file system; nullopt: cannot be asked
  std::optional<double> quota;  // bytes that it leaves; nullopt: there is none that can be asked

  double needed() const { return each * static_cast<double>(most - stored); }
  bool fits() const {
    return needed() <= free.value_or(needed()) && needed() <= quota.value_or(needed());
  }
};

// Of a job with workload.train. `home`: for a job without checkpoint.dir; nullptr = not known.
CheckpointRoom find_checkpoint_room(const JobSpec& spec, const HomePaths* home);

// The room that is missing, with both numbers and the remedy, one line; "" where nothing is.
std::string describe_missing_room(const CheckpointRoom& room, const CheckpointSpec& checkpoint);

// "96.40 GiB", "7.2 MiB".
std::string size_text(double bytes);

// What a quota leaves, in bytes: `hard` and `soft` in units of 1 KiB, 0 = none; a soft limit counts
// as a hard one, since it becomes one after its grace period. nullopt: no limit.
std::optional<double> left_of_quota(uint64_t hard, uint64_t soft, uint64_t used_bytes);

}  // namespace hpctl
