// SPDX-License-Identifier: Apache-2.0
// The way to the controller of one job over TCP. Every call on such a channel carries the job's
// token; the channel pings its peer, so that a controller whose node has vanished is noticed within
// seconds and not when TCP gives up.
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

// Back-off of our channels, and no connection shared with another channel of this process.
grpc::ChannelArguments channel_arguments();

// Lazy: nothing is connected yet.
std::shared_ptr<grpc::Channel> connect_address(const std::string& address,
                                               const std::string& token);

struct JobChannel {
  ControllerRecord controller;
  std::shared_ptr<grpc::Channel> channel;
};
// To the newest controller of the job; lazy as above. kUnavailable when there is none yet.
Result<JobChannel> connect_job(const std::string& job_dir);

}  // namespace hpctl
