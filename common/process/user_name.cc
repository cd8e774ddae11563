// SPDX-License-Identifier: Apache-2.0
#include "common/process/user_name.h"

#include <pwd.h>

#include <array>
#include <charconv>
#include <map>
#include <mutex>

namespace hpctl {
namespace {

constexpr size_t kMaxEntry = 16U << 10;  // of the user database

std::string ask_for_name(const std::string& text) {
  uid_t uid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), uid);
  if (error != std::errc() || end != text.data() + text.size()) return "";
  return ask_for_user_name(uid);
}

}  // namespace

std::string ask_for_user_name(uid_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, kMaxEntry> buffer{};
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0) return "";
  return found == nullptr ? "" : found->pw_name;
}

std::string user_name(const std::string& uid) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(uid); found != known.end()) return found->second;
  }
  std::string name = ask_for_name(uid);
  if (name.empty()) return name;  // who answers for it may have been away
  const std::lock_guard lock(mutex);
  return known.emplace(uid, std::move(name)).first->second;
}

}  // namespace hpctl
