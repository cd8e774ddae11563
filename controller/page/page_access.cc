// SPDX-License-Identifier: Apache-2.0
#include "controller/page/page_access.h"

#include <algorithm>

#include "common/base/random_hex.h"
#include "common/job/job_files.h"

namespace hpctl {

Result<std::string> PageAccess::make_code(uint32_t uid) {
  const std::lock_guard lock(mutex_);
  return add(codes_, kMostCodes, uid, kCodeMs);
}

std::optional<std::string> PageAccess::redeem(const std::string& code) {
  const std::lock_guard lock(mutex_);
  const auto found = find(codes_, code);
  if (found == codes_.end()) return std::nullopt;
  const uint32_t uid = found->uid;
  codes_.erase(found);
  auto session = add(sessions_, kMostSessions, uid, kSessionMs);
  if (!session.ok()) return std::nullopt;
  return *std::move(session);
}

std::optional<uint32_t> PageAccess::of(const std::string& session) {
  const std::lock_guard lock(mutex_);
  const auto found = find(sessions_, session);
  if (found == sessions_.end()) return std::nullopt;
  return found->uid;
}

Result<std::string> PageAccess::add(Secrets& secrets, size_t most, uint32_t uid, int64_t lasts_ms) {
  HP_TRY_ASSIGN(std::string text, random_key());
  const auto is_theirs = [uid](const Secret& secret) { return secret.uid == uid; };
  const auto theirs = std::count_if(secrets.begin(), secrets.end(), is_theirs);
  if (static_cast<size_t>(theirs) >= most) {
    secrets.erase(std::find_if(secrets.begin(), secrets.end(), is_theirs));
  } else if (secrets.size() >= kMostOfAll) {
    secrets.pop_front();
  }
  secrets.push_back({text, uid, clock_.monotonic_ms() + lasts_ms});
  return text;
}

PageAccess::Secrets::iterator PageAccess::find(Secrets& secrets, const std::string& text) {
  const int64_t now = clock_.monotonic_ms();
  while (!secrets.empty() && secrets.front().until_ms <= now) secrets.pop_front();
  auto found = secrets.end();
  for (auto it = secrets.begin(); it != secrets.end(); ++it) {
    if (same_token(it->text, text)) found = it;
  }
  return found;
}

}  // namespace hpctl
