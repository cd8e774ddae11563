// SPDX-License-Identifier: Apache-2.0
#include "controller/access/authenticator.h"

#include "common/base/job_files.h"
#include "common/rpc/job_channel.h"

namespace hpctl {

std::optional<uid_t> Authenticator::of(const grpc::ServerContextBase& context) const {
  const std::string peer = context.peer();
  if (const auto uid = local_.of(peer)) return uid;
  handshakes_.end(peer);
  if (tokens_.empty()) return std::nullopt;
  const auto& metadata = context.client_metadata();
  const auto [begin, end] = metadata.equal_range(kAuthorization);
  if (begin == end || std::next(begin) != end) return std::nullopt;
  const std::string value(begin->second.data(), begin->second.size());
  for (const std::string& token : tokens_) {
    if (same_token(value, kBearer + token)) return owner_;
  }
  return std::nullopt;
}

grpc::Status unauthenticated() {
  return {grpc::StatusCode::UNAUTHENTICATED,
          "the call carries no valid token of this job; see JOBDIR/token"};
}

}  // namespace hpctl
