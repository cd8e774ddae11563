// SPDX-License-Identifier: Apache-2.0
// Adds the communication to a compute-only table. Pure.
//
// A send follows the action that makes its data. The receives of a rank from one other rank are in
// the order of that rank's sends, each as late as its first use allows, so both ends of an edge
// agree and a receive waits for no data that a later action of the sender makes. A stage is
// unsharded once, before its first forward; after its last backward it is resharded and its
// gradients are reduced.
#pragma once

#include "common/base/result.h"
#include "trainer/schedule/action.h"

namespace hpctl {

// Idle cells are dropped. Returns the error of validate_schedule() where the table is not valid,
// and kInvalidArgument where it has communication already.
Result<ScheduleTable> lower_schedule(const ScheduleTable& compute);

}  // namespace hpctl
