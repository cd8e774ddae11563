// SPDX-License-Identifier: Apache-2.0
// Is this document one that a worker can act on? The controller has checked the same before; a
// document written by hand has been checked by nobody.
#pragma once

#include "common/base/result.h"
#include "common/base/workload.h"

namespace hpctl {

// kInvalidArgument names the first wrong key, as job.yaml spells it where it comes from there.
Outcome check_workload(const Workload& workload);

}  // namespace hpctl
