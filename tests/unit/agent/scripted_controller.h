// SPDX-License-Identifier: Apache-2.0
// A controller for tests of the agent: a real gRPC server on the controller's socket that keeps
// what it is told and says what the test wants.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "common/job/paths.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl::test {

class ScriptedController final : public v1::AgentLink::Service {
 public:
  struct Behaviour {
    uint32_t heartbeat_ms = 50;
    uint32_t orphan_timeout_ms = 60'000;
    uint32_t hang_timeout_ms = 0;  // not said
    bool acknowledge = true;
    bool exits_together = false;  // as controllers that do not understand WorkersExited
    std::string refuse;           // answer Register with a permanent refusal
  };

  explicit ScriptedController(const HomePaths& paths)
      : address_("unix:" + paths.controller_socket()) {}
  ~ScriptedController() override { stop(); }

  Behaviour behaviour;  // change only while stopped

  void start();
  // As a crash would: streams break at once.
  void stop();

  // The oldest message that fits, taken out of what was received; fails the test after a while.
  v1::AgentMessage take(const std::function<bool(const v1::AgentMessage&)>& fits);
  v1::AgentMessage take(v1::AgentMessage::KindCase kind) {
    return take([kind](const v1::AgentMessage& message) { return message.kind_case() == kind; });
  }
  // Messages of this kind received and not taken.
  size_t count(v1::AgentMessage::KindCase kind);
  void send(v1::ControllerMessage message);
  void acknowledge(const v1::AgentMessage& report);

 private:
  using Stream = grpc::ServerReaderWriter<v1::ControllerMessage, v1::AgentMessage>;
  grpc::Status Connect(grpc::ServerContext* context, Stream* stream) override;

  const std::string address_;
  std::unique_ptr<grpc::Server> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // An agent comes back within milliseconds, also before the listener is closed: nobody heard it.
  bool stops_ = false;
  std::deque<v1::AgentMessage> received_;
  Stream* stream_ = nullptr;  // of the newest connection
  std::set<grpc::ServerContext*> contexts_;
};

}  // namespace hpctl::test
