// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/operator_acl.h"

#include <grp.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "common/process/user_name.h"
#include "controller/cluster/identity.h"

namespace hpctl::cluster {
namespace {

constexpr size_t kMaxEntry = 64U << 10;  // of the group database: some have thousands of members
constexpr size_t kMaxPeople = 1'000;

// The names that useradd(8) accepts, and the @ and \ of directory services.
bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 256 && text.front() != '-' &&
         std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) <= ' ' || c == ':' || c == '%' || c == '\x7f';
         });
}

std::string group_name(gid_t gid) {
  group entry{};
  group* found = nullptr;
  std::array<char, kMaxEntry> buffer{};
  if (::getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found) != 0) return "";
  return found == nullptr ? "" : found->gr_name;
}

}  // namespace

Result<OperatorAcl> OperatorAcl::parse(const std::string& list, const std::string& where) {
  OperatorAcl people;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) {
    const bool is_group = word.starts_with('%');
    if (is_group) word.erase(0, 1);
    if (!is_name(word) || people.users_.size() + people.groups_.size() == kMaxPeople) {
      return Error{ErrorCode::kInvalidArgument,
                   where + ": expected users, uids and %groups, such as alice,1004,%ops, at most " +
                       std::to_string(kMaxPeople) + "; \"" + word + "\" is none"};
    }
    (is_group ? people.groups_ : people.users_).insert(word);
  }
  return people;
}

bool OperatorAcl::have(uid_t uid, gid_t gid) const {
  if (users_.contains(std::to_string(uid))) return true;
  if (!users_.empty()) {
    const std::string name = ask_for_user_name(uid);
    if (!name.empty() && users_.contains(name)) return true;
  }
  return !groups_.empty() && has_group_of(uid, gid);
}

bool OperatorAcl::has_group_of(uid_t uid, gid_t gid) const {
  const Identity identity = identity_of(uid, gid);
  return std::any_of(identity.groups.begin(), identity.groups.end(), [this](gid_t group) {
    return groups_.contains(std::to_string(group)) || groups_.contains(group_name(group));
  });
}

Role role_of(const Appointed& appointed, uid_t uid, gid_t gid, uid_t self) {
  if (uid == 0 || uid == self) return Role::kAdministrator;
  if (appointed.operators.have(uid, gid)) return Role::kAppointedOperator;
  return appointed.readers.have(uid, gid) ? Role::kAppointedReader : Role::kUser;
}

}  // namespace hpctl::cluster
