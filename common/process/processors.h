// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace hpctl {

// Processors that this process may run on (its affinity: taskset, a Slurm step's, a cpuset), at
// least 1.
int allowed_processors();

}  // namespace hpctl
