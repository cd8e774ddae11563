// SPDX-License-Identifier: Apache-2.0
// The TCP side of a job's controller, and its limits for strangers: any process on the cluster's
// network may connect. A call without the token is answered at once and leaves no state
// (authenticator.h); idle connections are closed, messages and calls per connection are bounded,
// and pings find peers that are gone.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <functional>
#include <memory>
#include <string>

#include "common/base/fd.h"
#include "common/net/tls_identity.h"

namespace hpctl {

inline constexpr int kMaxMessageBytes = 1 << 20;   // the largest real one is a heartbeat, some KiB
inline constexpr int kMaxMetadataBytes = 8 << 10;  // headers of a call
inline constexpr int kMaxCallsPerConnection = 32;  // at once
// Let in, and no TLS or HTTP/2. Long, because whose handshake is cut off comes again and costs as
// much: a busy machine may take seconds for its part. Strangers are few (handshakes.h).
inline constexpr int kHandshakeTimeoutMs = 15'000;
inline constexpr int kIdleConnectionMs = 15'000;  // without a call
inline constexpr int kServerPingMs = 5'000;       // of a silent peer; as long for its answer

// By which clients know that it is the controller they mean.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const TlsIdentity& identity);

// The server gets its connections from what is returned, which takes them over from when it has
// been built until it is shut down (tcp_listener.h).
std::function<void(UniqueFd connection)> add_tcp_acceptor(
    grpc::ServerBuilder& builder, const std::shared_ptr<grpc::ServerCredentials>& credentials);

// gRPC accepts. `port` is set when the server has been built; 0 = could not listen. `address` is
// "IP:PORT".
void add_tcp_listener(grpc::ServerBuilder& builder, const std::string& address,
                      const std::shared_ptr<grpc::ServerCredentials>& credentials, int& port);

}  // namespace hpctl
