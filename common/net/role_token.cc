// SPDX-License-Identifier: Apache-2.0
#include "common/net/role_token.h"

#include <algorithm>
#include <charconv>

#include "common/base/check.h"
#include "common/base/random_hex.h"
#include "common/net/hmac.h"

namespace hpctl {
namespace {

constexpr size_t kMaxTokenBytes = 160;  // the longest has 109

std::string with_mac(const std::string& secret, const std::string& text) {
  return text + "." + to_hex(hmac_sha256(secret, "hpctl token " + text));
}

// The number at the beginning of `text`, followed by a dot or the end; both are taken off.
template <typename Number>
std::optional<Number> take_number(std::string_view& text) {
  Number number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || (end != last && *end != '.')) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + (end == last ? 0 : 1));
  return number;
}

}  // namespace

std::string agent_token(const std::string& secret) {
  return with_mac(secret, to_word(TokenRole::kAgent));
}

std::string person_token(const std::string& secret, TokenRole role, uid_t uid, int64_t until_s) {
  HP_CHECK(role != TokenRole::kAgent);
  return with_mac(secret, std::string(to_word(role)) + "." + std::to_string(uid) + "." +
                              std::to_string(until_s));
}

std::optional<TokenBearer> read_role_token(const std::string& secret, const std::string& token,
                                           int64_t now_s) {
  if (same_bytes(token, secret)) return TokenBearer{TokenRole::kOwner, std::nullopt};
  const size_t dot = token.rfind('.');
  if (token.size() > kMaxTokenBytes || dot == std::string::npos) return std::nullopt;
  const std::string text = token.substr(0, dot);
  if (!same_bytes(token, with_mac(secret, text))) return std::nullopt;
  // From here on it is our own text.
  std::string_view rest = text;
  const auto role = from_word<TokenRole>(rest.substr(0, rest.find('.')));
  if (role == TokenRole::kAgent) return TokenBearer{TokenRole::kAgent, std::nullopt};
  if (!role) return std::nullopt;
  rest.remove_prefix(std::min(rest.size(), std::string_view(to_word(*role)).size() + 1));
  const auto uid = take_number<uid_t>(rest);
  const auto until_s = take_number<int64_t>(rest);
  if (!uid || !until_s || !rest.empty()) return std::nullopt;
  if (*until_s != 0 && now_s >= *until_s) return std::nullopt;
  return TokenBearer{*role, uid};
}

}  // namespace hpctl
