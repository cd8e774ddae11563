// SPDX-License-Identifier: Apache-2.0
// Keys and certificates of OpenSSL as values that free themselves, and what all certificates of
// ours have in common: ECDSA on P-256, SHA-256, version 3, a random serial number. Times are
// seconds since the Unix epoch. Free functions, any thread; where OpenSSL cannot do something they
// return null, false or "", and openssl_error() says why.
#pragma once

#include <openssl/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

struct FreeX509 {
  void operator()(EVP_PKEY* key) const noexcept;
  void operator()(X509* certificate) const noexcept;
};
using X509Key = std::unique_ptr<EVP_PKEY, FreeX509>;
using X509Certificate = std::unique_ptr<X509, FreeX509>;

X509Key make_key();
// Not signed yet. `name` is its common name, and the issuer's until another one is set.
X509Certificate make_certificate(EVP_PKEY* key, const std::string& name, int64_t begins_s,
                                 int64_t ends_s);
// `kind` is a NID, `value` as in openssl's x509v3_config(5). `issuer` is for what is derived from
// its key; may be `certificate` itself.
bool add_extension(X509* certificate, X509* issuer, int kind, const std::string& value);
bool sign_certificate(X509* certificate, EVP_PKEY* key);

std::string to_pem(EVP_PKEY* key);  // not encrypted
std::string to_pem(X509* certificate);
X509Key key_from_pem(const std::string& text);
// All of them, in order; what else is in the text is passed over. Empty where one is damaged.
std::vector<X509Certificate> certificates_from_pem(const std::string& text);

// kInternal: "WHAT: " and what OpenSSL has to say of this thread's last failure.
Error openssl_error(const std::string& what);

}  // namespace hpctl
