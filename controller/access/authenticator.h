// SPDX-License-Identifier: Apache-2.0
// Who is on the other side of a call; every handler asks this first. Over the local socket it is
// who the kernel says (local_listener.h). Over TCP it is nobody, unless the call carries the job's
// token: then it is the job's owner. There may be two that count, the one of the job's directory
// and the one that its cluster controller gave out. The two are told apart by gRPC's name of the
// peer, "fd:N" for what we accepted ourselves and "ipv4:..." for what gRPC did.
#pragma once

#include <grpcpp/server_context.h>

#include <optional>
#include <string>
#include <vector>

#include "controller/access/handshakes.h"
#include "controller/access/local_listener.h"

namespace hpctl {

class Authenticator {
 public:
  // No tokens = TCP has no business here.
  Authenticator(std::vector<std::string> tokens, uid_t owner)
      : tokens_(std::move(tokens)), owner_(owner) {}

  PeerUids& local() { return local_; }
  // Of TCP: over when a call has come, whoever made it.
  Handshakes& handshakes() { return handshakes_; }
  // Any thread, once for each call. nullopt = UNAUTHENTICATED.
  std::optional<uid_t> of(const grpc::ServerContextBase& context) const;

 private:
  const std::vector<std::string> tokens_;
  const uid_t owner_;
  PeerUids local_;
  mutable Handshakes handshakes_;  // has a lock of its own
};

// What nobody is told.
grpc::Status unauthenticated();

}  // namespace hpctl
