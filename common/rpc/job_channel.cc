// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/job_channel.h"

#include <grpc/support/log.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/client_interceptor.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/job/job_files.h"
#include "common/net/role_token.h"
#include "common/net/tls_identity.h"

namespace hpctl {
namespace {

constexpr char kCertificateBegins[] = "-----BEGIN CERTIFICATE-----";

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

// The token to show to `controller`: its owner's secret, or, for root, one made of it.
std::string token_of_caller(const std::string& job_dir, const ControllerRecord& controller,
                            const std::string& secret) {
  constexpr int64_t kValidSeconds = 3'600;
  struct stat directory {};
  const bool acts_for_another =
      ::geteuid() == 0 && ::stat(job_dir.c_str(), &directory) == 0 && directory.st_uid != 0;
  if (!acts_for_another || !controller.owner_tokens) return secret;
  return person_token(secret, TokenRole::kOwner, 0,
                      SystemClock().wall_ms() / 1'000 + kValidSeconds);
}

}  // namespace

void silence_handshakes() {
  static const bool once = [] {
    gpr_set_log_function([](gpr_log_func_args* line) {
      const std::string file = line->file;
      if (file.ends_with("ssl_transport_security.cc")) return;
      log_warning("gRPC: " + std::string(line->message));
    });
    return true;
  }();
  (void)once;
}

grpc::ChannelArguments channel_arguments(int attempt_ms) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // How long one attempt to connect may take, not how long the next one waits.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, attempt_ms);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  // Channels of one process do not share a connection: each has its own back-off and its own fate.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

int keepalive_ms_of_agents(size_t nodes) {
  const size_t wanted_ms = nodes * 1'000 / kPingsPerSecond;
  return static_cast<int>(std::clamp<size_t>(wanted_ms, kKeepaliveMs, kLongestKeepaliveMs));
}

Result<std::shared_ptr<grpc::Channel>> connect_address(const std::string& address,
                                                       const std::string& certificate,
                                                       const std::string& token, int attempt_ms,
                                                       int keepalive_ms) {
  // Without our root, gRPC would trust the machine's roots.
  if (!certificate.starts_with(kCertificateBegins)) {
    return Error{ErrorCode::kFailedPrecondition,
                 "the controller at " + address +
                     " has no certificate to know it by: it is of an older release of hpctl"};
  }
  silence_handshakes();
  grpc::ChannelArguments arguments = channel_arguments(attempt_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // 0 = as many as needed
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);             // never to be asked for the way
  arguments.SetSslTargetNameOverride(kTlsName);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> bearers;
  bearers.push_back(std::make_unique<TokenBearers>(token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      "ipv4:" + address, grpc::SslCredentials({certificate, "", ""}), arguments,
      std::move(bearers));
}

Result<ControllerRecord> find_controller(const std::string& job_dir) {
  HP_TRY_ASSIGN(auto record, newest_controller(job_dir));
  if (!record) {
    return Error{ErrorCode::kUnavailable, "no controller of " + job_dir + " has started yet"};
  }
  return std::move(*record);
}

Result<std::shared_ptr<grpc::Channel>> connect_as_agent(const std::string& job_dir,
                                                        const ControllerRecord& controller,
                                                        int attempt_ms) {
  HP_TRY_ASSIGN(const std::string secret, read_token(job_dir));
  const std::string token = controller.agent_tokens ? agent_token(secret) : secret;
  return connect_address(controller.address, controller.certificate, token, attempt_ms,
                         keepalive_ms_of_agents(controller.nodes.size()));
}

Result<JobChannel> connect_job(const std::string& job_dir) {
  HP_TRY_ASSIGN(ControllerRecord controller, find_controller(job_dir));
  HP_TRY_ASSIGN(const std::string secret, read_token(job_dir));
  HP_TRY_ASSIGN(auto channel, connect_address(controller.address, controller.certificate,
                                              token_of_caller(job_dir, controller, secret)));
  return JobChannel{std::move(controller), std::move(channel)};
}

}  // namespace hpctl
