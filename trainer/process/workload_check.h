// SPDX-License-Identifier: Apache-2.0
// Can a worker act on this document? The controller has checked the same before; a document from
// another source is unchecked.
#pragma once

#include "common/base/result.h"
#include "common/worker/workload.h"

namespace hpctl {

// kInvalidArgument names the first wrong key, as job.yaml spells it where it comes from there.
Outcome check_workload(const Workload& workload);

}  // namespace hpctl
