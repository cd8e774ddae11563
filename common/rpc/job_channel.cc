// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/job_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/client_interceptor.h>

#include <vector>

#include "common/base/job_files.h"

namespace hpctl {
namespace {

// gRPC gives call credentials only to secure channels; a token that guards against other users of
// the cluster's own network is ours to add.
class TokenBearer final : public grpc::experimental::Interceptor {
 public:
  explicit TokenBearer(std::string value) : value_(std::move(value)) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->insert({kAuthorization, value_});
    }
    methods->Proceed();
  }

 private:
  const std::string value_;
};

class TokenBearers final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenBearers(const std::string& token) : value_(kBearer + token) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new TokenBearer(value_);  // gRPC owns it
  }

 private:
  const std::string value_;
};

}  // namespace

grpc::ChannelArguments channel_arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // How long one attempt to connect may take, not how long the next one waits: the other side may
  // be busy, and to a node that is off nothing answers.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  // Channels of one process do not share a connection: each has its own back-off and its own fate.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

std::shared_ptr<grpc::Channel> connect_address(const std::string& address,
                                               const std::string& token) {
  grpc::ChannelArguments arguments = channel_arguments();
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // 0 = as many as needed
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);             // never to be asked for the way
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> bearers;
  bearers.push_back(std::make_unique<TokenBearers>(token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      "ipv4:" + address, grpc::InsecureChannelCredentials(), arguments, std::move(bearers));
}

Result<JobChannel> connect_job(const std::string& job_dir) {
  HP_TRY_ASSIGN(auto record, newest_controller(job_dir));
  if (!record) {
    return Error{ErrorCode::kUnavailable, "no controller of " + job_dir + " has started yet"};
  }
  HP_TRY_ASSIGN(const std::string token, read_token(job_dir));
  auto channel = connect_address(record->address, token);
  return JobChannel{std::move(*record), std::move(channel)};
}

}  // namespace hpctl
