// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/identity.h"

#include <grp.h>
#include <unistd.h>

#include <charconv>
#include <sstream>

#include "common/base/printable.h"
#include "common/process/user_name.h"

namespace hpctl::cluster {
namespace {

constexpr int kMaxGroups = 65'536;  // the kernel's

Result<uint32_t> number(const std::string& text) {
  uint32_t value = 0;
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (err != std::errc() || end != text.data() + text.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 "\"" + printable_line(text, 20) + "\" is no number of a user or group"};
  }
  return value;
}

}  // namespace

Identity identity_of(uid_t uid, gid_t gid) {
  Identity identity{uid, gid, {gid}};
  const std::string name = ask_for_user_name(uid);
  if (name.empty()) return identity;
  int count = 64;
  for (;;) {
    identity.groups.resize(static_cast<size_t>(count));
    const int had = count;
    if (::getgrouplist(name.c_str(), gid, identity.groups.data(), &count) >= 0) break;
    if (count <= had || count > kMaxGroups) return {uid, gid, {gid}};
  }
  identity.groups.resize(static_cast<size_t>(count));
  return identity;
}

std::string to_text(const Identity& identity) {
  std::string text = std::to_string(identity.uid) + ":" + std::to_string(identity.gid) + ":";
  const char* separator = "";
  for (const gid_t group : identity.groups) {
    text += separator + std::to_string(group);
    separator = ",";
  }
  return text;
}

Result<Identity> identity_from_text(const std::string& text) {
  std::istringstream in(text);
  std::string word;
  Identity identity;
  for (uint32_t* id : {&identity.uid, &identity.gid}) {
    if (!std::getline(in, word, ':')) word.clear();
    HP_TRY_ASSIGN(*id, number(word));
  }
  while (std::getline(in, word, ',')) {
    HP_TRY_ASSIGN(const gid_t group, number(word));
    identity.groups.push_back(group);
  }
  return identity;
}

Outcome become(const Identity& identity) {
  if (::geteuid() != 0) {
    if (identity.uid == ::geteuid()) return Ok{};
    return Error{ErrorCode::kPermissionDenied,
                 "only root can start a process of uid " + std::to_string(identity.uid)};
  }
  if (::setgroups(identity.groups.size(), identity.groups.data()) != 0 ||
      ::setresgid(identity.gid, identity.gid, identity.gid) != 0 ||
      ::setresuid(identity.uid, identity.uid, identity.uid) != 0) {
    return errno_error("cannot become uid " + std::to_string(identity.uid));
  }
  uid_t real = 0;
  uid_t effective = 0;
  uid_t saved = 0;
  if (::getresuid(&real, &effective, &saved) != 0 || real != identity.uid ||
      effective != identity.uid || saved != identity.uid) {
    return Error{ErrorCode::kInternal,
                 "the kernel did not make us uid " + std::to_string(identity.uid)};
  }
  return Ok{};
}

}  // namespace hpctl::cluster
