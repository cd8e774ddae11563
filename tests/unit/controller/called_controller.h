// SPDX-License-Identifier: Apache-2.0
// The services of a controller as they are reached over TCP, in this process: the store, the owner
// thread, the gate and TLS are the real ones. What the core decides is not performed: that is for
// `Effects`, an OwnerEffects.
#pragma once

#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/rpc/job_channel.h"
#include "controller/access/tcp_access.h"
#include "controller/access/tcp_listener.h"
#include "controller/agents/agent_link.h"
#include "controller/api/service.h"
#include "controller/schedulers/local/local_scheduler.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {

class AuditedCalls {
 public:
  void add(AuditEntry entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_back(std::move(entry));
  }
  std::vector<AuditEntry> taken() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(entries_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<AuditEntry> entries_;
};

inline constexpr char kOwnerToken[] = "token";

template <typename Effects>
class CalledController {
 public:
  explicit CalledController(bool accepts_jobs) {
    auto store = Store::open(paths_.database(), Store::Mode::kOwner);
    HP_CHECK(store.ok());
    auto reader = Store::open(paths_.database(), Store::Mode::kReader);
    HP_CHECK(reader.ok());
    feed_ = std::make_unique<EventFeed>(std::move(*reader));
    loop_ = std::make_unique<OwnerLoop>(std::move(*store), core::State{}, clock_, effects_);
    link_ =
        std::make_unique<AgentLink>(paths_, gate_, *loop_, liveness_, progress_, scheduler_, ports_,
                                    [](const std::string&, const std::string&) { return false; });
    service_ = std::make_unique<ControllerService>(
        paths_, ControllerIdentity{"", "n0", "", accepts_jobs}, gate_, *loop_, *feed_, progress_,
        *link_, [](InjectedFault, const core::LogEntry&) {},
        [](uint32_t) { return Result<std::string>("http://page"); },
        [] { return std::vector<LemonScore>(); }, [] {});
    grpc::ServerBuilder builder;
    builder.RegisterService(link_.get());
    builder.RegisterService(service_.get());
    auto accepted = add_tcp_acceptor(builder, server_credentials(identity_));
    server_ = builder.BuildAndStart();
    listener_ = TcpListener::open("127.0.0.1:0", authenticator_.handshakes()).value();
    listener_->start(std::move(accepted));
    address_ = "127.0.0.1:" + std::to_string(listener_->port());
    loop_->start();
  }
  ~CalledController() {
    listener_->stop();
    link_->close_all();
    loop_->stop();
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  std::shared_ptr<grpc::Channel> connect(const std::string& token = kOwnerToken) const {
    return connect_address(address_, identity_.certificate, token).value();
  }

 protected:
  const TemporaryDirectory directory_;
  const HomePaths paths_{directory_.path()};
  const SystemClock clock_;
  const TlsIdentity identity_ = make_tls_identity().value();
  Authenticator authenticator_{{kOwnerToken}, ::geteuid()};
  AuditedCalls audited_;
  const Gate gate_{authenticator_, [this](AuditEntry entry) { audited_.add(std::move(entry)); }};
  Effects effects_;
  RendezvousPorts ports_;
  Liveness liveness_;
  ProgressTable progress_;
  LocalScheduler scheduler_{paths_, "", [](JobId, const Scheduler::MakeEvent&) {}};
  std::unique_ptr<OwnerLoop> loop_;
  std::unique_ptr<EventFeed> feed_;
  std::unique_ptr<AgentLink> link_;
  std::unique_ptr<ControllerService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<TcpListener> listener_;
  std::string address_;
};

}  // namespace hpctl
