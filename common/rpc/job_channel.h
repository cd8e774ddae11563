// SPDX-License-Identifier: Apache-2.0
// The channel to the controller of one job over TCP. Before the channel sends anything, the peer
// must prove by TLS that it is the controller whose certificate we have, and that certificate alone
// is trusted: a process that took over the port of a dead controller learns nothing and is not
// obeyed. Every call then carries a token of the job (common/net/role_token.h). The channel pings
// its peer, so it notices a vanished or stopped controller within seconds and not when TCP gives
// up.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstddef>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/job/endpoint.h"

namespace hpctl {

// Name of the metadata, and what a token looks like in it.
inline constexpr char kAuthorization[] = "authorization";
inline constexpr char kBearer[] = "Bearer ";

// A client pings a controller of which it has heard nothing for kKeepaliveMs, and drops a
// connection on which nothing is answered for kKeepaliveTimeoutMs, its ping or what else it sent.
inline constexpr int kKeepaliveMs = 2'000;
inline constexpr int kKeepaliveTimeoutMs = 2'000;
// The agents of a large job ping so rarely that all of them together send kPingsPerSecond, within
// kLongestKeepaliveMs. They still notice a lost machine of the controller quickly, because it does
// not acknowledge their heartbeats. They notice a stopped process that much later.
inline constexpr int kPingsPerSecond = 100;
inline constexpr int kLongestKeepaliveMs = 10'000;
int keepalive_ms_of_agents(size_t nodes);

// How long one attempt to connect may take, TLS included: the other side may be busy, and a node
// that is off does not answer.
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
                                                       int attempt_ms = kAttemptMs,
                                                       int keepalive_ms = kKeepaliveMs);

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
// To the newest controller, as the job's owner. Root, with the directory of another user, comes
// with a token that names root, so that the audit log and the history do.
Result<JobChannel> connect_job(const std::string& job_dir);

}  // namespace hpctl
