// SPDX-License-Identifier: Apache-2.0
// The errors that end a job for good. A worker that exits with kExitDoNotRestart does so for all
// others, so the cause must be one that no machine can change, such as a value of the job file. An
// error of one attempt on one machine may be transient: a file server is down for a second, a mount
// is missing, descriptors or memory are short. Such a fault is counted, and the restart budget,
// which waits longer each time and leaves a node that has three in a row, ends a permanent one. An
// error of storage itself stays kStorage: the job waits for storage, which costs no restart.
#pragma once

#include <utility>

#include "common/base/result.h"

namespace hpctl {

// Of reading what all nodes read, and of taking what other processes take, too. kDataLoss, too:
// it would be blamed on the checkpoint or the memory that the generation started from.
inline Error may_pass(Error error) {
  const bool is_of_the_job =
      error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kFailedPrecondition;
  if (!is_of_the_job && error.code != ErrorCode::kStorage) error.code = ErrorCode::kInternal;
  return error;
}

}  // namespace hpctl
