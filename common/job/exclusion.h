// SPDX-License-Identifier: Apache-2.0
// JOBDIR/excluded-R.json: without which nodes the life of a Slurm job with restart count R asked to
// be started again. Slurm does not always listen (docs/decisions/0903), so the next life compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

struct Exclusion {
  std::vector<std::string> nodes;
  int64_t attempt = 0;  // of as many requeues in a row that excluded the same nodes; 0 = none did
};

Outcome write_exclusion(const std::string& job_dir, uint64_t restart_count,
                        const Exclusion& exclusion);
// No nodes without a file; kDataLoss when it cannot be understood.
Result<Exclusion> read_exclusion(const std::string& job_dir, uint64_t restart_count);

}  // namespace hpctl
