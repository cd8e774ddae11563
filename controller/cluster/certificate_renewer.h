// SPDX-License-Identifier: Apache-2.0
// Keeps what a cluster controller shows on TCP valid: a leaf of the authority in a directory
// (common/authority/authority.h), renewed long before it runs out and when another authority begins
// to sign; and does for the authority's rotation what time has come for. The leaf's key is in this
// process's memory only. One thread; what is served may be looked at from any.
#pragma once

#include <memory>
#include <string>

#include "common/authority/authority.h"
#include "common/authority/served_identity.h"

namespace hpctl::cluster {

// A leaf of that age is renewed; two thirds of its life are left for whatever hinders that.
inline constexpr int64_t kRenewSeconds = kLeafSeconds / 3;

class CertificateRenewer {
 public:
  // `names` are the names of this machine, besides the one that callers ask for. An error without a
  // usable authority.
  static Result<std::unique_ptr<CertificateRenewer>> open(const std::string& directory,
                                                          LeafNames names, int64_t now_s);

  // Renews and rotates as due. Errors are logged, once as long as they are the same; the present
  // leaf stays in use. Reads a file; call it about once a second.
  void tick(int64_t now_s);

  // As long as this lives.
  const ServedIdentity& served() const { return served_; }
  int64_t leaf_ends_s() const { return leaf_ends_s_; }
  // The end of the newest authority's certificate: by then the next one must have replaced it.
  int64_t authority_ends_s() const { return authority_ends_s_; }

 private:
  CertificateRenewer(AuthorityDirectory directory, LeafNames names)
      : directory_(std::move(directory)), names_(std::move(names)) {}
  Outcome renew(int64_t now_s);

  const AuthorityDirectory directory_;
  const LeafNames names_;
  ServedIdentity served_;
  std::string signer_;  // the certificate of who signed the leaf; "" = there is none
  int64_t issued_s_ = 0;
  int64_t leaf_ends_s_ = 0;
  int64_t authority_ends_s_ = 0;
  std::string last_problem_;
};

}  // namespace hpctl::cluster
