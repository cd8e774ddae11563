// SPDX-License-Identifier: Apache-2.0
// Slurm's calls need munged, and libslurm repeats them in silence for longer than anybody waits
// when it does not run: so it is asked for first.
#pragma once

#include "common/base/result.h"

namespace hpctl::slurm {

// Ok when something listens on munged's socket, or when this Slurm uses another authentication.
Outcome check_munged();

}  // namespace hpctl::slurm
