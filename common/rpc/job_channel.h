// SPDX-License-Identifier: Apache-2.0
// The way to the controller of one job over TCP. Before anything is sent the peer must prove by TLS
// that it is the controller whose certificate we were given, and that certificate alone is trusted:
// who took over the port of a dead controller learns nothing and is not obeyed. Every call then
// carries a token of the job (common/base/role_token.h); the channel pings its peer, so that a
// controller whose node has vanished is noticed within seconds and not when TCP gives up.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "common/base/endpoint.h"
#include "common/base/result.h"

namespace hpctl {

// Name of the metadata, and what a token looks like in it.
inline constexpr char kAuthorization[] = "authorization";
inline constexpr char kBearer[] = "Bearer ";

// A client that got no answer to a ping for so long drops the connection.
inline constexpr int kKeepaliveMs = 2'000;
inline constexpr int kKeepaliveTimeoutMs = 2'000;

// How long one attempt to connect may take, TLS included: the other side may be busy, and to a node
// that is off nothing answers.
inline constexpr int kAttemptMs = 2'000;

// gRPC prints a line for every handshake that fails: a stranger could fill a log with them, and who
// calls gets the reason as a status. Its other lines become ours.
void silence_handshakes();

// Back-off of our channels, and no connection shared with another channel of this process. To set
// one of these again later has no effect: of two the first counts.
grpc::ChannelArguments channel_arguments(int attempt_ms = kAttemptMs);

// Lazy: nothing is connected yet. `certificate` is PEM, of the controller itself;
// kFailedPrecondition where it is none.
Result<std::shared_ptr<grpc::Channel>> connect_address(const std::string& address,
                                                       const std::string& certificate,
                                                       const std::string& token,
                                                       int attempt_ms = kAttemptMs);

// The newest controller of the job; kUnavailable when there is none yet.
Result<ControllerRecord> find_controller(const std::string& job_dir);
// To that one, as an agent of the job; lazy as above. A controller of a release that knows no
// agents' tokens gets the job's.
Result<std::shared_ptr<grpc::Channel>> connect_as_agent(const std::string& job_dir,
                                                        const ControllerRecord& controller,
                                                        int attempt_ms);

struct JobChannel {
  ControllerRecord controller;
  std::shared_ptr<grpc::Channel> channel;
};
// To the newest controller, as the job's owner.
Result<JobChannel> connect_job(const std::string& job_dir);

}  // namespace hpctl
