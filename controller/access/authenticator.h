// SPDX-License-Identifier: Apache-2.0
// The caller of a call. Over the local socket, the kernel names it (local_listener.h). Over TCP the
// caller is unknown, unless the call carries a token of the job (common/net/role_token.h). Two
// secrets may be valid, the one of the job's directory and the one that its cluster controller gave
// out. gRPC's name of the peer distinguishes the two ways: "fd:N" for connections that we accepted
// ourselves and "ipv4:..." for those that gRPC accepted. The gate decides what the caller may do
// (gate.h).
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
  // For TCP: a handshake is over when a call has come, from any caller.
  Handshakes& handshakes() { return handshakes_; }
  // Agents without their own tokens may connect (rules.h).
  bool older_agents() const { return older_agents_; }
  // Any thread, once for each call. nullopt = an unknown caller.
  std::optional<Caller> of(const grpc::ServerContextBase& context) const;

 private:
  const std::vector<std::string> secrets_;
  const uid_t owner_;
  const bool older_agents_;
  PeerUids local_;
  mutable Handshakes handshakes_;  // has a lock of its own
};

}  // namespace hpctl
