// SPDX-License-Identifier: Apache-2.0
// MUNGE credentials: a text that proves which user of the cluster made it, with a payload that only
// munged's key can read or change. libmunge (functions and numbers: munge.h, munge(3),
// munge_ctx(3)) is loaded where it is used and never linked: hpctl runs on machines without it.
//
// munged's socket is $HPCTL_MUNGE_SOCKET, else libmunge's default. It is tried before each call,
// since libmunge would wait for an absent munged. A munged that accepts and does not answer costs
// libmunge's own time limits, some seconds.
//
// Any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "common/base/result.h"

namespace hpctl {

// Base64 grows the payload by a third, and munged takes requests of at most 1 MiB.
inline constexpr size_t kMaxMungePayload = 700'000;

// `reader`: the only uid that can decode it, besides munged's own; nullopt = every user of the
// cluster. kUnavailable when munged does not answer, kNotFound without libmunge.
Result<std::string> munge_encode(const std::string& payload, std::optional<uid_t> reader);

struct MungeIdentity {
  uid_t uid = 0;
  gid_t gid = 0;  // the primary one
  std::string payload;
};
// kPermissionDenied when the credential is not genuine, expired, was decoded on this machine
// before, or is for another reader.
Result<MungeIdentity> munge_decode(const std::string& credential);

}  // namespace hpctl
