// SPDX-License-Identifier: Apache-2.0
// Whose job it is: what a process of the cluster controller becomes before it touches anything of
// the user's.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl::cluster {

struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary ones, the primary one among them
};

// With the groups that this machine knows of; a uid without an entry has its primary one. Asks the
// name service, and may block as long as that does.
Identity identity_of(uid_t uid, gid_t gid);

// "UID:GID:GROUP,GROUP,...", for a command line.
std::string to_text(const Identity& identity);
Result<Identity> identity_from_text(const std::string& text);

// This process for good: groups, all three gids, all three uids, then checked. Without root's
// rights only who it is already. Precondition: one thread.
Outcome become(const Identity& identity);

}  // namespace hpctl::cluster
