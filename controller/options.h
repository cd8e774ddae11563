// SPDX-License-Identifier: Apache-2.0
// Command line of hpcontroller.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

struct ControllerOptions {
  std::string home;                // "" = from the environment
  std::string metrics;             // HOST:PORT; "" = none. Default: $HPCTL_METRICS
  int64_t idle_exit_seconds = 60;  // 0 = never
  bool detach = false;             // fork first and leave the caller
  int ready_fd = -1;               // told when serving (common/rpc/controller_process.h)
  bool list_failpoints = false;
  bool version = false;
  bool help = false;
};

extern const char kControllerUsage[];

Result<ControllerOptions> parse_controller_options(int argc, const char* const* argv);

}  // namespace hpctl
