// SPDX-License-Identifier: Apache-2.0
// Slurm's calls need munged, and without it libslurm repeats them silently for longer than any
// caller waits. So munged is checked first.
#pragma once

#include "common/base/result.h"

namespace hpctl::slurm {

// Ok when something listens on munged's socket, or when this Slurm uses another authentication.
Outcome check_munged();

}  // namespace hpctl::slurm
