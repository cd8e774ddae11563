// SPDX-License-Identifier: Apache-2.0
// The tokens of one job, by which its controller distinguishes agents from users, and users from
// each other (docs/security.md). All are derived from one secret, 64 hexadecimal digits, so there
// is no further file to keep, and none is missing in a job of an older release:
//
//   SECRET                      its owner; JOBDIR/token, or the cluster controller's for it
//   agent.MAC                   an agent
//   reader.UID.UNTIL.MAC        a user with read access
//   operator.UID.UNTIL.MAC      a user with read access who may give orders about nodes
//   owner.UID.UNTIL.MAC         root, who may do what the owner may; the audit log names UID
//
// MAC is HMAC-SHA-256 under the secret of "hpctl token " and the text before the last dot, in
// hexadecimal digits. The bearer of one of these tokens can make no other, and cannot change its
// user or its expiry. UNTIL is in seconds since the Unix epoch; 0 = as long as the secret does.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/word_enum.h"

namespace hpctl {

enum class TokenRole : uint8_t { kAgent, kReader, kOperator, kOwner };
constexpr std::array<const char*, 4> words_of(TokenRole) {
  return {"agent", "reader", "operator", "owner"};
}

std::string agent_token(const std::string& secret);
// Of kReader, kOperator or kOwner.
std::string person_token(const std::string& secret, TokenRole role, uid_t uid, int64_t until_s);

struct TokenBearer {
  TokenRole role = TokenRole::kAgent;
  std::optional<uid_t> uid;  // nullopt: an agent, or the owner with the secret itself
};
// Whose `token` it is; nullopt: it was not made of this secret, or its time is over.
std::optional<TokenBearer> read_role_token(const std::string& secret, const std::string& token,
                                           int64_t now_s);

}  // namespace hpctl
