// SPDX-License-Identifier: Apache-2.0
#include "common/net/x509.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>

namespace hpctl {
namespace {

using Memory = std::unique_ptr<BIO, decltype(&BIO_free_all)>;
using Extension = std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)>;

constexpr long kVersion3 = 2;

Memory empty_memory() { return {BIO_new(BIO_s_mem()), BIO_free_all}; }
Memory memory_of(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free_all};
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return std::string(data, size > 0 ? static_cast<size_t>(size) : 0);
}

bool set_time(ASN1_TIME* time, int64_t seconds) { return ASN1_TIME_set(time, seconds) != nullptr; }

}  // namespace

void FreeX509::operator()(EVP_PKEY* key) const noexcept { EVP_PKEY_free(key); }
void FreeX509::operator()(X509* certificate) const noexcept { X509_free(certificate); }

X509Key make_key() { return X509Key(EVP_EC_gen("P-256")); }

X509Certificate make_certificate(EVP_PKEY* key, const std::string& name, int64_t begins_s,
                                 int64_t ends_s) {
  X509Certificate made(X509_new());
  uint64_t serial = 0;
  if (made == nullptr || key == nullptr ||
      RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) != 1) {
    return nullptr;
  }
  X509_NAME* const subject = X509_get_subject_name(made.get());
  const auto* text = reinterpret_cast<const unsigned char*>(name.c_str());
  const bool filled =
      X509_set_version(made.get(), kVersion3) == 1 &&
      ASN1_INTEGER_set_uint64(X509_get_serialNumber(made.get()), serial >> 1U) == 1 &&
      set_time(X509_getm_notBefore(made.get()), begins_s) &&
      set_time(X509_getm_notAfter(made.get()), ends_s) &&
      X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_ASC, text, -1, -1, 0) == 1 &&
      X509_set_issuer_name(made.get(), subject) == 1 && X509_set_pubkey(made.get(), key) == 1;
  return filled ? std::move(made) : nullptr;
}

bool add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context{};
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()),
                            X509_EXTENSION_free);
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool sign_certificate(X509* certificate, EVP_PKEY* key) {
  return X509_sign(certificate, key, EVP_sha256()) > 0;
}

std::string to_pem(EVP_PKEY* key) {
  const Memory memory = empty_memory();
  const bool written =
      memory != nullptr &&
      PEM_write_bio_PrivateKey(memory.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1;
  return written ? text_of(memory.get()) : "";
}

std::string to_pem(X509* certificate) {
  const Memory memory = empty_memory();
  const bool written = memory != nullptr && PEM_write_bio_X509(memory.get(), certificate) == 1;
  return written ? text_of(memory.get()) : "";
}

X509Key key_from_pem(const std::string& text) {
  const Memory memory = memory_of(text);
  if (memory == nullptr) return nullptr;
  // A key that wants a pass phrase is none of ours: "" is given instead of asking the terminal.
  std::string none;
  return X509Key(PEM_read_bio_PrivateKey(memory.get(), nullptr, nullptr, none.data()));
}

std::vector<X509Certificate> certificates_from_pem(const std::string& text) {
  const Memory memory = memory_of(text);
  std::vector<X509Certificate> found;
  if (memory == nullptr) return found;
  ERR_clear_error();
  while (X509* const next = PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(next);
  }
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) return {};
  ERR_clear_error();  // it only says that there is no further one
  return found;
}

Error openssl_error(const std::string& what) {
  std::array<char, 256> words{};
  ERR_error_string_n(ERR_get_error(), words.data(), words.size());
  ERR_clear_error();
  return Error{ErrorCode::kInternal, what + ": " + words.data()};
}

}  // namespace hpctl
