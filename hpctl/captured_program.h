// SPDX-License-Identifier: Apache-2.0
// A program, of ours or Slurm's, that a verb runs and waits for.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

struct Captured {
  std::string out;    // all that it printed
  int exit_code = 0;  // 128 + the signal where one ended it
};

// Its stdin and stderr are ours; argv[0] is an absolute path. Where the caller has an
// InterruptFlag, Ctrl-C ends it with SIGTERM, and its exit code is that.
Result<Captured> run_captured(const std::vector<std::string>& argv);

}  // namespace hpctl
