// SPDX-License-Identifier: Apache-2.0
// Who is on the other side of a call. Over the local socket it is who the kernel says
// (local_listener.h). Over TCP it is nobody, unless the call carries a token of the job
// (common/base/role_token.h). There may be two secrets that count, the one of the job's directory
// and the one that its cluster controller gave out. The two ways are told apart by gRPC's name of
// the peer, "fd:N" for what we accepted ourselves and "ipv4:..." for what gRPC did. What the caller
// may do is the gate's to say (gate.h).
#pragma once

#include <grpcpp/server_context.h>

#include <optional>
#include <string>
#include <vector>

#include "controller/access/handshakes.h"
#include "controller/access/local_listener.h"
#include "controller/access/rules.h"

namespace hpctl {

struct Caller {
  Role role = Role::kLocal;
  uid_t uid = 0;       // the person; of an agent the job's owner
  uid_t acts_for = 0;  // whose jobs the call is about: everybody's for root, else this uid's
  std::string from;    // as gRPC names the peer; of a local one "local socket"
};

class Authenticator {
 public:
  // No secrets = TCP has no business here. They stand for jobs of `owner`.
  Authenticator(std::vector<std::string> secrets, uid_t owner, bool older_agents = false)
      : secrets_(std::move(secrets)), owner_(owner), older_agents_(older_agents) {}

  PeerUids& local() { return local_; }
  // Of TCP: over when a call has come, whoever made it.
  Handshakes& handshakes() { return handshakes_; }
  // Agents that know no tokens of their own may come (rules.h).
  bool older_agents() const { return older_agents_; }
  // Any thread, once for each call. nullopt = nobody whom we know.
  std::optional<Caller> of(const grpc::ServerContextBase& context) const;

 private:
  const std::vector<std::string> secrets_;
  const uid_t owner_;
  const bool older_agents_;
  PeerUids local_;
  mutable Handshakes handshakes_;  // has a lock of its own
};

}  // namespace hpctl
