// SPDX-License-Identifier: Apache-2.0
// The identity of one controller on TCP: a key that never leaves its process, and a self-signed
// certificate. The others find the certificate where only the job's owner can write
// (controllers/K.json) or in an answer that MUNGE sealed. They trust this one certificate and no
// other, so neither its name nor its dates mean anything.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

// The name in every certificate, and the one that a client asks for.
inline constexpr char kTlsName[] = "controller.hpctl";

struct TlsIdentity {
  std::string private_key;  // PEM; ECDSA on P-256
  std::string certificate;  // PEM
};

// At exit OpenSSL takes down what its threads use while gRPC's still run, which leaks or worse.
// Every program that speaks TLS includes this: it is called before main(), and so before gRPC sets
// OpenSSL up. True if OpenSSL agreed.
bool keep_openssl_until_exit() noexcept;
inline const bool kOpensslStaysUntilExit = keep_openssl_until_exit();

// A new one.
Result<TlsIdentity> make_tls_identity();

}  // namespace hpctl
