// SPDX-License-Identifier: Apache-2.0
#include "common/authority/certificates.h"

#include <openssl/asn1.h>
#include <openssl/bn.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/obj_mac.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <memory>

#include "common/base/printable.h"
#include "common/base/random_hex.h"
#include "common/net/x509.h"

namespace hpctl {
namespace {

constexpr size_t kNameBytes = 24;  // of a node, in a common name of at most 64
constexpr size_t kTagDigits = 8;

// The characters allowed in a name of X509 and in a list of x509v3_config(5), where a comma would
// begin another entry.
bool is_host(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
  });
}

bool is_address(const std::string& address) {
  return !address.empty() &&
         address.find_first_not_of("0123456789abcdefABCDEF.:") == std::string::npos;
}

std::string alternative_names(const LeafNames& names) {
  std::string list = std::string("DNS:") + kClusterName;
  for (const std::string& host : names.hosts) {
    if (is_host(host)) list += ",DNS:" + host;
  }
  for (const std::string& address : names.addresses) {
    if (is_address(address)) list += ",IP:" + address;
  }
  return list;
}

Result<TlsIdentity> as_identity(EVP_PKEY* key, X509* certificate, const std::string& what) {
  TlsIdentity identity{to_pem(key), to_pem(certificate)};
  if (!identity.private_key.empty() && !identity.certificate.empty()) return identity;
  return openssl_error(what);
}

int64_t seconds_of(const ASN1_TIME* time) {
  std::tm broken_down{};
  return ASN1_TIME_to_tm(time, &broken_down) == 1 ? ::timegm(&broken_down) : 0;
}

std::string hex_of(const ASN1_INTEGER* number) {
  const std::unique_ptr<BIGNUM, decltype(&BN_free)> value(ASN1_INTEGER_to_BN(number, nullptr),
                                                          BN_free);
  char* digits = value == nullptr ? nullptr : BN_bn2hex(value.get());
  std::string text = digits == nullptr ? "" : digits;
  OPENSSL_free(digits);
  return text;
}

std::string fingerprint_of(const X509* certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (X509_digest(certificate, EVP_sha256(), digest.data(), &size) != 1) return "";
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    if (i > 0) text += ':';
    text += {kDigits[digest.at(i) >> 4U], kDigits[digest.at(i) & 15U]};
  }
  return text;
}

std::string common_name(const X509* certificate) {
  std::array<char, 128> name{};
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name.data(),
                            static_cast<int>(name.size()));
  return printable_line(name.data(), name.size());
}

}  // namespace

Result<TlsIdentity> make_authority(const std::string& node, int64_t now_s, int64_t seconds) {
  const std::string what = "OpenSSL cannot make an authority";
  HP_TRY_ASSIGN(const std::string tag, random_key());
  const std::string name = "hpctl CA of " +
                           (is_host(node) ? node.substr(0, kNameBytes) : "a node") + " " +
                           tag.substr(0, kTagDigits);
  const X509Key key = make_key();
  const X509Certificate made =
      make_certificate(key.get(), name, now_s - kBackdatedSeconds, now_s + seconds);
  X509* const own = made.get();
  const bool is_signed =
      made != nullptr &&
      add_extension(own, own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      add_extension(own, own, NID_key_usage, "critical,keyCertSign,cRLSign") &&
      add_extension(own, own, NID_subject_key_identifier, "hash") &&
      sign_certificate(own, key.get());
  if (!is_signed) return openssl_error(what);
  return as_identity(key.get(), own, what);
}

Result<TlsIdentity> issue_leaf(const TlsIdentity& authority, const LeafNames& names,
                               int64_t now_s) {
  const std::string what = "OpenSSL cannot make a certificate of the cluster controller";
  const X509Key signer = key_from_pem(authority.private_key);
  const auto issuers = certificates_from_pem(authority.certificate);
  if (signer == nullptr || issuers.size() != 1) return openssl_error(what);
  X509* const issuer = issuers.front().get();
  const int64_t ends_s = std::min(now_s + kLeafSeconds, seconds_of(X509_get0_notAfter(issuer)));
  const X509Key key = make_key();
  const X509Certificate made =
      make_certificate(key.get(), kClusterName, now_s - kBackdatedSeconds, ends_s);
  X509* const leaf = made.get();
  const bool is_signed =
      made != nullptr && X509_set_issuer_name(leaf, X509_get_subject_name(issuer)) == 1 &&
      add_extension(leaf, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
      add_extension(leaf, issuer, NID_key_usage, "critical,digitalSignature") &&
      add_extension(leaf, issuer, NID_ext_key_usage, "serverAuth") &&
      add_extension(leaf, issuer, NID_authority_key_identifier, "keyid:always") &&
      add_extension(leaf, issuer, NID_subject_alt_name, alternative_names(names)) &&
      sign_certificate(leaf, signer.get());
  if (!is_signed) return openssl_error(what);
  return as_identity(key.get(), leaf, what);
}

Result<std::vector<CertificateFacts>> read_certificates(const std::string& text,
                                                        const std::string& where) {
  const auto wrong = [&](const std::string& why) {
    return Error{ErrorCode::kInvalidArgument, where + ": " + why};
  };
  const auto certificates = certificates_from_pem(text);
  if (certificates.empty()) {
    return wrong("there is no certificate in it (PEM), or one is damaged");
  }
  if (certificates.size() > kMaxCertificates) {
    return wrong("more than " + std::to_string(kMaxCertificates) + " certificates");
  }
  std::vector<CertificateFacts> all;
  for (const X509Certificate& one : certificates) {
    CertificateFacts facts;
    facts.name = common_name(one.get());
    facts.serial = hex_of(X509_get0_serialNumber(one.get()));
    facts.begins_s = seconds_of(X509_get0_notBefore(one.get()));
    facts.ends_s = seconds_of(X509_get0_notAfter(one.get()));
    facts.fingerprint = fingerprint_of(one.get());
    facts.is_authority = X509_check_ca(one.get()) > 0;
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace hpctl
