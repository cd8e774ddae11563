// SPDX-License-Identifier: Apache-2.0
// The owner of this HPCTL_HOME. A job belongs to its user, and the controller's socket lies in a
// directory of its user. So with another user's home no verb would ever find a job, and an error
// with the reason is better.
#pragma once

#include "common/base/result.h"
#include "common/job/paths.h"

namespace hpctl {

// For verbs that change something. A home that does not exist yet is fine.
Outcome check_home_is_ours(const HomePaths& paths);
// For verbs that read the record.
Outcome check_home_is_readable(const HomePaths& paths);

}  // namespace hpctl
