// SPDX-License-Identifier: Apache-2.0
// The authority of a head node, and its replacement by another one without locking out any caller.
// It lies in a directory:
//
//   DIR/authority.json  0600  keys and certificates, the oldest first, and since when they are what
//   DIR/bundle.pem      0644  the certificates, for callers: copied to wherever they are
//   DIR/lock            0600
//
// Rotation. A new key and certificate are made (1), and the bundle has both (2). Then the file
// records when the new one will sign, late enough for the operator to copy the bundle everywhere
// (3). Until then the old one signs. When the last leaf of the old one has expired, its key is
// deleted (4) and its certificate leaves the bundle (5). Each of these steps replaces one file as a
// whole. advance() finds out from the files which step is due, so a crash between two steps does no
// harm: the next call goes on. The bundle always contains every authority that signs.
//
// Times are seconds since the Unix epoch, and arguments. One thread; processes exclude each other
// by DIR/lock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/authority/certificates.h"
#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/net/tls_identity.h"

namespace hpctl {

// After the last leaf of an authority has run out: for clocks that are behind.
inline constexpr int64_t kSlackSeconds = 3'600;

struct Authority {
  TlsIdentity identity;
  int64_t spread_s = 0;      // how long after it was published it may sign
  int64_t published_s = 0;   // 0 = it is not known to be in the bundle yet
  int64_t signs_from_s = 0;  // 0 = likewise
  CertificateFacts facts{};  // of its certificate; not stored
};

// The one or two there are.
struct AuthorityState {
  std::vector<Authority> authorities;  // the oldest first; the second is to follow the first

  bool is_rotating() const { return authorities.size() > 1; }
  const Authority& newest() const { return authorities.back(); }
  // The authority that signs at that time: the new one from its moment on, or if the old one has
  // expired.
  const Authority& signer(int64_t now_s) const;
  // When the first one goes; nullopt = it is the only one, or that is not written down yet.
  std::optional<int64_t> leaves_s() const;
  // Certificates, the newest first.
  std::string bundle() const;
};

class AuthorityDirectory {
 public:
  enum class Wait { kForOthers, kForNobody };

  // kNotFound where there is none in `path`, kPermissionDenied where others may write there or may
  // read the keys.
  static Result<AuthorityDirectory> open(const std::string& path);
  // Makes `path`, and an authority where there is none; false = there was one, which is left as it
  // is. Either way advance() is to follow.
  static Result<bool> make(const std::string& path, const std::string& node, int64_t now_s,
                           int64_t seconds);

  const std::string& path() const { return path_; }
  std::string bundle_path() const { return path_ + "/bundle.pem"; }
  // kDataLoss where the file is damaged.
  Result<AuthorityState> read() const;

  // Makes the next one (1), which is to sign `spread_s` after it was published; false = one is
  // about to follow already. advance() is to follow.
  Result<bool> begin_rotation(const std::string& node, int64_t now_s, int64_t seconds,
                              int64_t spread_s, Wait wait = Wait::kForOthers) const;
  // Does what is due first, one replaced file; false = nothing was.
  Result<bool> advance_once(int64_t now_s, Wait wait) const;
  // Does all steps that are due. kAlreadyExists: another process is doing it; this call does not
  // wait.
  Outcome advance(int64_t now_s, Wait wait) const;

 private:
  explicit AuthorityDirectory(std::string path) : path_(std::move(path)) {}
  std::string state_path() const { return path_ + "/authority.json"; }
  Result<UniqueFd> lock(Wait wait) const;
  Outcome write(const AuthorityState& state) const;

  std::string path_;
};

}  // namespace hpctl
