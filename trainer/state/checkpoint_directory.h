// SPDX-License-Identifier: Apache-2.0
// Whether trouble with the checkpoint directory is the job's mistake or the storage's. A directory
// that has worked once is not wrong in the job file. If it is missing, forbidden or full later, its
// file system or the credentials for it are away, which ErrorCode::kStorage says: that is waited
// for.
#pragma once

#include "common/base/result.h"
#include "common/base/workload.h"

namespace hpctl {

// This job, or the one that it continues, has completed steps there.
bool has_worked(const Workload& workload);

// It goes on from memory, or from a copy in its mirror: the directory may be away.
bool starts_without_directory(const Workload& workload);

// What a file met whose directory is right: missing, forbidden and full become kStorage.
Error storage_error(Error error);

// What reading or writing in the checkpoint directory met.
Error directory_error(const Workload& workload, Error error);

// kStorage where the directory that the controller has claimed is not the one that is there, but
// perhaps the mount point of a file system that is away. Before anything is written.
Outcome check_claimed(const Workload& workload);

// Creates it, unless it was claimed. kFailedPrecondition, with the remedy, where no checkpoint can
// ever be saved there.
Outcome prepare_checkpoint_directory(const Workload& workload);

}  // namespace hpctl
