// SPDX-License-Identifier: Apache-2.0
// Certificates of an authority of the cluster's own, and what it signs: leaves, with which a
// cluster controller proves on TCP that it is one. Every leaf has the name kClusterName, which
// callers ask for whatever address they have dialled; so that others (Prometheus, curl) need not
// know it, the machine's names and addresses are in it as well.
//
// Times are seconds since the Unix epoch, and are arguments. Free functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/net/tls_identity.h"

namespace hpctl {

inline constexpr int64_t kDaySeconds = 86'400;
inline constexpr char kClusterName[] = "cluster.hpctl";

// A leaf is short-lived, because there is no revocation.
inline constexpr int64_t kLeafSeconds = kDaySeconds;
// A caller's clock may be behind the head's by this much. (MUNGE requires minutes anyway.)
inline constexpr int64_t kBackdatedSeconds = kDaySeconds;

// A key and a certificate signed by itself, from now on for `seconds`. `node` is in its name, for
// people; two of one node have different names.
Result<TlsIdentity> make_authority(const std::string& node, int64_t now_s, int64_t seconds);

struct LeafNames {
  std::vector<std::string> hosts;      // "head", "head.example"
  std::vector<std::string> addresses;  // "10.0.0.1", "2001:db8::1"
};
// For kLeafSeconds, but not for longer than the authority's own certificate counts.
Result<TlsIdentity> issue_leaf(const TlsIdentity& authority, const LeafNames& names, int64_t now_s);

struct CertificateFacts {
  std::string name;    // its common name, printable
  std::string serial;  // hexadecimal
  int64_t begins_s = 0;
  int64_t ends_s = 0;       // the last second
  std::string fingerprint;  // SHA-256 of its bytes, "AB:CD:...", as openssl x509 prints it
  bool is_authority = false;
};
// Every certificate in a PEM text, in its order, at most kMaxCertificates. An error begins with
// `where`; kInvalidArgument if there is none, or one is damaged.
inline constexpr size_t kMaxCertificates = 64;
inline constexpr size_t kMaxBundleBytes = 256U << 10;
Result<std::vector<CertificateFacts>> read_certificates(const std::string& text,
                                                        const std::string& where);

}  // namespace hpctl
