// SPDX-License-Identifier: Apache-2.0
// Compares the size of a training job's checkpoints with the free space where the job keeps them,
// and with the quota of the user and the group.
//
// The quota comes from quotactl_fd(2) (Linux 5.14), which ext4, XFS and other local file systems
// answer. NFS and Lustre keep quotas in other ways, which hpctl does not query. The free space of
// ext4 and XFS contains project quotas already. Unknown figures cause no warning. Any warning is
// only a warning: the room may be another when the job saves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/job/job_spec.h"
#include "common/job/paths.h"

namespace hpctl {

struct CheckpointRoom {
  std::string key = "checkpoint.dir";  // of the job file
  std::string directory;               // where they are kept; of a job without a number: above it
  double each = 0;                     // bytes of one
  int64_t most = 0;                    // at once: those kept, and one being written
  int64_t stored = 0;           // of these, what the job continues and is on the disk already
  std::optional<double> free;   // bytes of the file system; nullopt: cannot be asked
  std::optional<double> quota;  // bytes that it leaves; nullopt: there is none that can be asked

  double needed() const { return each * static_cast<double>(most - stored); }
  bool fits() const {
    return needed() <= free.value_or(needed()) && needed() <= quota.value_or(needed());
  }
};

// `spec` has workload.train. `home`: for a job without checkpoint.dir; nullptr = not known.
CheckpointRoom find_checkpoint_room(const JobSpec& spec, const HomePaths* home);

// That, and of a job with a mirror the room there: it keeps as many. Where both are on one file
// system, the free bytes are counted twice.
std::vector<CheckpointRoom> find_checkpoint_rooms(const JobSpec& spec, const HomePaths* home);

// One line with the needed and the free bytes and the remedy; "" if the checkpoints fit.
std::string describe_missing_room(const CheckpointRoom& room, const CheckpointSpec& checkpoint);

// "96.40 GiB", "7.2 MiB".
std::string size_text(double bytes);

// Bytes that a quota leaves. `hard` and `soft`: limits in units of 1 KiB, 0 = none. A soft limit
// counts like a hard one, since the kernel enforces it after a grace period. nullopt: no limit.
std::optional<double> left_of_quota(uint64_t hard, uint64_t soft, uint64_t used_bytes);

}  // namespace hpctl
