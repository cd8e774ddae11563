// SPDX-License-Identifier: Apache-2.0
// `hpcontroller --cluster`: the service of the head node, from options to exit code.
#pragma once

#include "controller/leadership/options.h"

namespace hpctl::cluster {

// Until SIGTERM or SIGINT; the jobs' controllers go on. Precondition: one thread so far.
int run_cluster(const ControllerOptions& options);

}  // namespace hpctl::cluster
