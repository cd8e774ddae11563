// SPDX-License-Identifier: Apache-2.0
#include "controller/access/reloading_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <mutex>
#include <string>
#include <utility>

#include "common/rpc/job_channel.h"

namespace hpctl {
namespace {

class ReloadingCredentials final : public grpc::ServerCredentials {
 public:
  explicit ReloadingCredentials(const ServedIdentity& served)
      : served_(served),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE, &ReloadingCredentials::fetch, this))) {}
  ~ReloadingCredentials() override { grpc_server_credentials_release(credentials_); }
  ReloadingCredentials(const ReloadingCredentials&) = delete;
  ReloadingCredentials& operator=(const ReloadingCredentials&) = delete;

  // The content of a call identifies the caller.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // On gRPC's threads, before each handshake.
  static grpc_ssl_certificate_config_reload_status fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<ReloadingCredentials*>(self)->fetch(*config);
  }
  grpc_ssl_certificate_config_reload_status fetch(grpc_ssl_server_certificate_config*& config) {
    auto now = served_.get();
    const std::lock_guard lock(mutex_);
    if (now == fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{now->private_key.c_str(), now->certificate.c_str()};
    // gRPC insists on authorities of clients here, although no client must show a certificate.
    config = grpc_ssl_server_certificate_config_create(pair.cert_chain, &pair, 1);
    if (config == nullptr) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    fetched_ = std::move(now);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const ServedIdentity& served_;
  grpc_server_credentials* const credentials_;
  std::mutex mutex_;
  std::shared_ptr<const TlsIdentity> fetched_;  // what gRPC has
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> reloading_credentials(const ServedIdentity& served) {
  silence_handshakes();
  return std::make_shared<ReloadingCredentials>(served);
}

}  // namespace hpctl
