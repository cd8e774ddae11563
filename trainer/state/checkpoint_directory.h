// SPDX-License-Identifier: Apache-2.0
// Whether an error of the checkpoint directory is the job's mistake or the storage's. A directory
// that has worked once is not wrong in the job file. If it is missing, forbidden or full later, its
// file system or the credentials for it are unavailable (ErrorCode::kStorage), and the job waits.
#pragma once

#include "common/base/result.h"
#include "common/worker/workload.h"

namespace hpctl {

// This job, or the one that it continues, has completed steps there.
bool has_worked(const Workload& workload);

// It goes on from memory, or from a copy in its mirror: the directory may be away.
bool starts_without_directory(const Workload& workload);

// An error of a file in a correct directory: missing, forbidden and full become kStorage.
Error storage_error(Error error);

// An error of reading or writing in the checkpoint directory, or of reading the data or the base of
// adapters, which a job that has worked has read before.
Error directory_error(const Workload& workload, Error error);

// kStorage where the directory that the controller has claimed is not the one that is there, but
// perhaps the mount point of a file system that is away, or another job's directory. Before
// anything is written.
Outcome check_claimed(const Workload& workload);

// Whether this process finds another job's owner.json there.
bool is_of_another_job(const Workload& workload);

// Creates it, unless it was claimed. kFailedPrecondition, with the remedy, where no checkpoint can
// ever be saved there.
Outcome prepare_checkpoint_directory(const Workload& workload);

}  // namespace hpctl
