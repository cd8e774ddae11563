// SPDX-License-Identifier: Apache-2.0
// ControllerLink: one AgentLink stream. gRPC's threads fill an inbox and empty an outbox; the
// agent's own thread does everything else and is woken through an eventfd.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>
#include <vector>

#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl::agent {

class ControllerLink {
 public:
  // Messages not yet sent; heartbeats beyond are dropped, so that a controller that does not read
  // costs no memory. Reports are few and bounded by the report log.
  static constexpr size_t kFullOutbox = 256;
  // Messages received and not yet taken; reading pauses there.
  static constexpr size_t kFullInbox = 256;

  // Starts the stream. `wake_fd` is an eventfd that outlives the link.
  ControllerLink(const std::shared_ptr<grpc::Channel>& channel, int wake_fd);
  // Cancels what is still open and waits for gRPC to let go (milliseconds).
  ~ControllerLink();
  ControllerLink(const ControllerLink&) = delete;
  ControllerLink& operator=(const ControllerLink&) = delete;

  void send(const v1::AgentMessage& message);
  std::vector<v1::ControllerMessage> take_received();
  // The stream has ended; take_received() may still hold its last messages.
  bool closed() const;
  // Ends the stream, if it has not ended by itself, and says why it did: "" = no error.
  std::string finish();

 private:
  class Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace hpctl::agent
