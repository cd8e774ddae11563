// SPDX-License-Identifier: Apache-2.0
// From options to the exit code: start in the mode asked for, tell the starter, wait until there is
// nothing more to do, stop.
#pragma once

#include "controller/leadership/options.h"

namespace hpctl {

// Precondition: one thread so far. Blocks SIGTERM, SIGINT and SIGUSR1 in all threads.
int run_controller(const ControllerOptions& options);

}  // namespace hpctl
