// SPDX-License-Identifier: Apache-2.0
// Whose HPCTL_HOME this is. A job belongs to its user, and the controller's socket lies in a
// directory of its user; so with the home of somebody else nothing would ever be found, and the
// person is better told why.
#pragma once

#include "common/base/paths.h"
#include "common/base/result.h"

namespace hpctl {

// For verbs that change something. A home that does not exist yet is fine.
Outcome check_home_is_ours(const HomePaths& paths);
// For verbs that read the record.
Outcome check_home_is_readable(const HomePaths& paths);

}  // namespace hpctl
