// SPDX-License-Identifier: Apache-2.0
#include "common/net/tls_identity.h"

#include <openssl/crypto.h>
#include <openssl/obj_mac.h>

#include "common/net/x509.h"

namespace hpctl {
namespace {

// For ever, 1970 to 9999: a clock that is years off must not end a job.
constexpr int64_t kBeginsSeconds = 0;
constexpr int64_t kEndsSeconds = 253'402'300'799;

}  // namespace

bool keep_openssl_until_exit() noexcept {
  return OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;
}

Result<TlsIdentity> make_tls_identity() {
  const X509Key key = make_key();
  const X509Certificate made = make_certificate(key.get(), kTlsName, kBeginsSeconds, kEndsSeconds);
  X509* const own = made.get();
  const bool is_signed =
      made != nullptr &&
      // It is its own authority.
      add_extension(own, own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      add_extension(own, own, NID_key_usage, "critical,digitalSignature,keyCertSign") &&
      add_extension(own, own, NID_subject_alt_name, std::string("DNS:") + kTlsName) &&
      sign_certificate(own, key.get());
  TlsIdentity identity;
  if (is_signed) identity = {to_pem(key.get()), to_pem(own)};
  if (!identity.private_key.empty() && !identity.certificate.empty()) return identity;
  return openssl_error(
      "OpenSSL cannot make a key and a certificate for this controller; without them no client may "
      "connect to it");
}

}  // namespace hpctl
