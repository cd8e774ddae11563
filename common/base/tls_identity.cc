// SPDX-License-Identifier: Apache-2.0
#include "common/base/tls_identity.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

namespace hpctl {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Memory = std::unique_ptr<BIO, decltype(&BIO_free_all)>;
using Extension = std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)>;

// For ever: a clock that is years off must not end a job.
constexpr char kNotBefore[] = "19700101000000Z";
constexpr char kNotAfter[] = "99991231235959Z";
constexpr long kVersion3 = 2;

bool add_extension(X509* certificate, int kind, const std::string& value) {
  const Extension extension(X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str()),
                            X509_EXTENSION_free);
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool fill(X509* certificate, EVP_PKEY* key) {
  uint64_t serial = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) != 1) return false;
  X509_NAME* const name = X509_get_subject_name(certificate);
  const auto* text = reinterpret_cast<const unsigned char*>(kTlsName);
  return X509_set_version(certificate, kVersion3) == 1 &&
         ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1U) == 1 &&
         ASN1_TIME_set_string(X509_getm_notBefore(certificate), kNotBefore) == 1 &&
         ASN1_TIME_set_string(X509_getm_notAfter(certificate), kNotAfter) == 1 &&
         X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_ASC, text, -1, -1, 0) == 1 &&
         X509_set_issuer_name(certificate, name) == 1 && X509_set_pubkey(certificate, key) == 1 &&
         // It is its own authority.
         add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
         add_extension(certificate, NID_key_usage, "critical,digitalSignature,keyCertSign") &&
         add_extension(certificate, NID_subject_alt_name, std::string("DNS:") + kTlsName) &&
         X509_sign(certificate, key, EVP_sha256()) > 0;
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return std::string(data, size > 0 ? static_cast<size_t>(size) : 0);
}

}  // namespace

bool keep_openssl_until_exit() noexcept {
  return OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;
}

Result<TlsIdentity> make_tls_identity() {
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const Certificate certificate(X509_new(), X509_free);
  const Memory key_text(BIO_new(BIO_s_mem()), BIO_free_all);
  const Memory certificate_text(BIO_new(BIO_s_mem()), BIO_free_all);
  const bool made = key != nullptr && certificate != nullptr && key_text != nullptr &&
                    certificate_text != nullptr && fill(certificate.get(), key.get()) &&
                    PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0,
                                             nullptr, nullptr) == 1 &&
                    PEM_write_bio_X509(certificate_text.get(), certificate.get()) == 1;
  if (!made) {
    return Error{ErrorCode::kInternal,
                 "OpenSSL cannot make a key and a certificate for this controller; without them "
                 "nobody may connect to it"};
  }
  return TlsIdentity{text_of(key_text.get()), text_of(certificate_text.get())};
}

}  // namespace hpctl
