// SPDX-License-Identifier: Apache-2.0
// One controller per home: a lock on a file that names who has it. The kernel lets go of it when
// the process is gone, however it ended.
#pragma once

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/job/paths.h"

namespace hpctl {

// As long as the descriptor is open. Waits a moment for a controller that is ending. kAlreadyExists
// with its pid: another one runs.
Result<UniqueFd> take_home_lock(const HomePaths& paths, const Clock& clock);

}  // namespace hpctl
