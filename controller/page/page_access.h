// SPDX-License-Identifier: Apache-2.0
// Access to the status page. `hpctl open` asks over an authenticated call and gets a code. The
// first visitor with the code, within kCodeMs, gets a session, which the browser keeps as a cookie.
// Codes work once. Both are 128 random bits, are kept in memory only, and are bounded in number:
// the oldest of a uid gives way, so a user with many requests cannot end the sessions of others;
// and if very many uids ask, the oldest of all. Any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace hpctl {

class PageAccess {
 public:
  static constexpr int64_t kCodeMs = 10 * 60'000;  // long enough to forward a port first
  static constexpr int64_t kSessionMs = 24 * 3'600'000;
  static constexpr size_t kMostCodes = 16;     // of a uid
  static constexpr size_t kMostSessions = 64;  // of a uid
  static constexpr size_t kMostOfAll = 2'048;  // of each kind

  explicit PageAccess(const Clock& clock) : clock_(clock) {}

  Result<std::string> make_code(uint32_t uid);
  // The session's name; nullopt = no such code, or it was used, or is too old.
  std::optional<std::string> redeem(const std::string& code);
  // Whose session it is.
  std::optional<uint32_t> of(const std::string& session);

 private:
  struct Secret {
    std::string text;
    uint32_t uid = 0;
    int64_t until_ms = 0;
  };
  using Secrets = std::deque<Secret>;  // in order of age

  Result<std::string> add(Secrets& secrets, size_t most, uint32_t uid, int64_t lasts_ms);
  // Looks at all of them, so that the time it takes tells nothing.
  Secrets::iterator find(Secrets& secrets, const std::string& text);

  const Clock& clock_;
  std::mutex mutex_;
  Secrets codes_;
  Secrets sessions_;
};

}  // namespace hpctl
