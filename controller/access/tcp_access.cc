// SPDX-License-Identifier: Apache-2.0
#include "controller/access/tcp_access.h"

#include "common/rpc/job_channel.h"

namespace hpctl {
namespace {

// gRPC keeps buffers for each connection of the size that it may need next: a slice that it reads
// into, which grows from 8 KiB to 64 by itself, and one that it encrypts from, 16 KiB. Messages of
// agents and clients are small, and there may be thousands of connections.
constexpr int kReadChunkBytes = 8 * 1024;
constexpr int kTlsFrameBytes = 2 * 1024;

// However they come.
void bound_connections(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleConnectionMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kServerPingMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kServerPingMs);
  // Our clients ping each kKeepaliveMs; more often is abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveMs / 2);
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadChunkBytes);
  builder.AddChannelArgument(GRPC_ARG_TSI_MAX_FRAME_SIZE, kTlsFrameBytes);
  // gRPC's pings that measure how much is under way stay, though no message needs a larger window:
  // what was sent and not acknowledged is what shows within kServerPingMs that a network is cut.
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> server_credentials(const TlsIdentity& identity) {
  silence_handshakes();
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({identity.private_key, identity.certificate});
  return grpc::SslServerCredentials(options);
}

std::function<void(UniqueFd connection)> add_tcp_acceptor(
    grpc::ServerBuilder& builder, const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  bound_connections(builder);
  const std::shared_ptr<Acceptor> acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  return [acceptor](UniqueFd connection) {
    Acceptor::NewConnectionParameters accepted;
    accepted.fd = connection.release();
    acceptor->HandleNewConnection(&accepted);
  };
}

void add_tcp_listener(grpc::ServerBuilder& builder, const std::string& address,
                      const std::shared_ptr<grpc::ServerCredentials>& credentials, int& port) {
  bound_connections(builder);
  // Another server of this user must not share the port.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(address, credentials, &port);
}

}  // namespace hpctl
