// SPDX-License-Identifier: Apache-2.0
// The users and groups in the cluster controller's configuration with a role.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

#include "common/base/result.h"
#include "controller/access/rules.h"

namespace hpctl::cluster {

// "alice,1004,%ops": names of users, uids, and groups with a % before name or number. This machine
// resolves them for each call, so a change of a group counts at once, and a directory service that
// is down when the service starts keeps no user out for good.
class OperatorAcl {
 public:
  // "" = no users. kInvalidArgument names `where` the list comes from.
  static Result<OperatorAcl> parse(const std::string& list, const std::string& where);

  // May wait for a directory service, unless the list is empty. `gid` is the primary group.
  bool have(uid_t uid, gid_t gid) const;

 private:
  bool has_group_of(uid_t uid, gid_t gid) const;

  std::set<std::string> users_;   // names and numbers
  std::set<std::string> groups_;  // likewise
};

struct Appointed {
  OperatorAcl operators;
  OperatorAcl readers;
};

// The role of a user that MUNGE has named. `self` is the uid of the service.
Role role_of(const Appointed& appointed, uid_t uid, gid_t gid, uid_t self);

}  // namespace hpctl::cluster
