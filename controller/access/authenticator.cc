// SPDX-License-Identifier: Apache-2.0
#include "controller/access/authenticator.h"

#include "common/base/clock.h"
#include "common/net/role_token.h"
#include "common/rpc/job_channel.h"

namespace hpctl {
namespace {

Role role_of(TokenRole role) {
  switch (role) {
    case TokenRole::kAgent:
      return Role::kAgent;
    case TokenRole::kReader:
      return Role::kReader;
    case TokenRole::kOperator:
      return Role::kOperator;
    case TokenRole::kOwner:
      return Role::kOwner;
  }
  return Role::kAgent;
}

}  // namespace

std::optional<Caller> Authenticator::of(const grpc::ServerContextBase& context) const {
  const std::string peer = context.peer();
  if (const auto uid = local_.of(peer)) return Caller{Role::kLocal, *uid, *uid, "local socket"};
  handshakes_.end(peer);
  const auto& metadata = context.client_metadata();
  const auto [begin, end] = metadata.equal_range(kAuthorization);
  if (begin == end || std::next(begin) != end) return std::nullopt;
  std::string value(begin->second.data(), begin->second.size());
  if (!value.starts_with(kBearer)) return std::nullopt;
  value.erase(0, sizeof kBearer - 1);
  const int64_t now_s = SystemClock().wall_ms() / 1000;
  for (const std::string& secret : secrets_) {
    const auto bearer = read_role_token(secret, value, now_s);
    if (bearer) return Caller{role_of(bearer->role), bearer->uid.value_or(owner_), owner_, peer};
  }
  return std::nullopt;
}

}  // namespace hpctl
