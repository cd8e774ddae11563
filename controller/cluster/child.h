// SPDX-License-Identifier: Apache-2.0
// The start of a job's controller under the cluster controller: `hpcontroller --run-as
// UID:GID:GROUPS --job-dir DIR --job N ...`, with the socket of child_protocol.h as its stdin.
//
// It becomes the job's owner before it reads any of the owner's files: from then on the kernel
// decides what it may read and write, even if root may not (an NFS that maps root to `nobody`).
// Then it waits for the order, checks the job's directory, and sends its output to the job's own
// log.
#pragma once

#include "controller/leadership/options.h"

namespace hpctl::cluster {

// `options` completed by the order; what is wrong has been reported to the service as well.
// Precondition: one thread.
Result<ControllerOptions> begin_child(ControllerOptions options);

}  // namespace hpctl::cluster
