// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/certificate_renewer.h"

#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"

namespace hpctl::cluster {
namespace {

std::string day_of(int64_t seconds) { return format_wall_ms(seconds * 1'000).substr(0, 19) + "Z"; }

}  // namespace

Result<std::unique_ptr<CertificateRenewer>> CertificateRenewer::open(const std::string& directory,
                                                                     LeafNames names,
                                                                     int64_t now_s) {
  HP_TRY_ASSIGN(auto opened, AuthorityDirectory::open(directory));
  std::unique_ptr<CertificateRenewer> keeper(
      new CertificateRenewer(std::move(opened), std::move(names)));
  HP_TRY(keeper->renew(now_s));
  return keeper;
}

Outcome CertificateRenewer::renew(int64_t now_s) {
  // The holder of the lock (hpctl ca) takes the due steps, too.
  const Outcome advanced = directory_.advance(now_s, AuthorityDirectory::Wait::kForNobody);
  if (!advanced.ok() && advanced.error().code != ErrorCode::kAlreadyExists) {
    return advanced.error();
  }
  HP_TRY_ASSIGN(const AuthorityState state, directory_.read());
  authority_ends_s_ = state.newest().facts.ends_s;
  const Authority& signer = state.signer(now_s);
  const bool is_fresh = now_s >= issued_s_ - kBackdatedSeconds && now_s < issued_s_ + kRenewSeconds;
  if (is_fresh && signer.identity.certificate == signer_) return Ok{};
  if (now_s > signer.facts.ends_s) {
    return Error{ErrorCode::kFailedPrecondition,
                 "the authority in " + directory_.path() + " (" + signer.facts.name +
                     ") counts no more since " + day_of(signer.facts.ends_s) +
                     "; hpctl ca rotate makes another one, whose bundle callers must get"};
  }
  HP_TRY_ASSIGN(TlsIdentity leaf, issue_leaf(signer.identity, names_, now_s));
  HP_TRY_ASSIGN(const auto facts, read_certificates(leaf.certificate, "a new leaf"));
  if (signer_ != signer.identity.certificate) log_info("certificates are of " + signer.facts.name);
  served_.set(std::move(leaf));
  signer_ = signer.identity.certificate;
  issued_s_ = now_s;
  leaf_ends_s_ = facts.front().ends_s;
  return Ok{};
}

void CertificateRenewer::tick(int64_t now_s) {
  const Outcome renewed = renew(now_s);
  const std::string problem = renewed.ok() ? "" : renewed.error().message;
  if (problem != last_problem_ && !problem.empty()) log_error(problem);
  if (problem != last_problem_ && problem.empty()) log_info("the authority can be used again");
  last_problem_ = problem;
}

}  // namespace hpctl::cluster
