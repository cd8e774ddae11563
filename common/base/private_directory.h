// SPDX-License-Identifier: Apache-2.0
// A user's own directory on a node's local disk, in a place where any user may create one first.
#pragma once

#include <sys/types.h>

#include <string>

#include "common/base/result.h"

namespace hpctl {

// "/tmp/hpctl-UID", for everything of a user on this node.
std::string user_directory();
std::string user_directory_of(uid_t uid);

// Makes it with mode 0700, or finds it so; kPermissionDenied where it belongs to another user or
// others may enter it.
Outcome own_private_directory(const std::string& path);

}  // namespace hpctl
