// SPDX-License-Identifier: Apache-2.0
// The JSON of TimeSpent: in status files and in the controller's store.
#pragma once

#include "common/base/json.h"
#include "common/job/time_spent.h"

namespace hpctl {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StepWaits, checkpoint_ms, data_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TimeSpent, start_ms, notice_ms, restart_ms,
                                                repeat_ms, decide_ms, wait_ms, suspended_ms, waits)

}  // namespace hpctl
