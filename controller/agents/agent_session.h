// SPDX-License-Identifier: Apache-2.0
// One stream of one agent process: reading, ordered writing, closing. agent_link interprets the
// messages. Bytes are decoded here, and not by gRPC, which cannot distinguish invalid bytes from
// the end of the stream.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "common/job/ids.h"
#include "controller/access/authenticator.h"
#include "controller/core/types.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl {

class AgentSession final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public std::enable_shared_from_this<AgentSession> {
 public:
  // On gRPC's threads, one at a time for one session. nullptr: bytes that are no message.
  using Received = std::function<void(AgentSession& session, const v1::AgentMessage* message)>;
  using Closed = std::function<void(AgentSession& session)>;

  // `caller`: who the gate let in.
  AgentSession(Caller caller, Received received, Closed closed);
  const Caller& caller() const { return caller_; }

  // Keeps itself alive until gRPC is done with it.
  void start();
  // Any thread. Messages leave in order. An agent that does not read for kSendLimit messages is cut
  // off; it comes back and gets what it missed.
  void send(v1::ControllerMessage message);
  // Any thread. Ends the stream when what was sent has left.
  void close(const grpc::Status& status);

  // The identity that the agent claims. Written before the first `send`, by the thread that
  // registers it.
  struct Identity {
    core::NodeKey node;
    std::string boot_id;
    bool beats_as_told = false;  // it knows BeatEvery
  };
  void set_identity(Identity identity) { identity_ = std::move(identity); }
  const Identity& identity() const { return identity_; }

  // Whether `closed` has begun; kept by its callee under a separate lock.
  bool is_over = false;

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void write_next();      // under mutex_
  void finish_if_idle();  // likewise

  const Caller caller_;
  const Received received_;
  const Closed closed_;
  Identity identity_;
  grpc::ByteBuffer incoming_bytes_;
  v1::AgentMessage incoming_;
  std::shared_ptr<AgentSession> self_;

  std::mutex mutex_;
  std::deque<v1::ControllerMessage> outgoing_;  // the first is being written
  grpc::ByteBuffer outgoing_bytes_;
  bool closing_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

}  // namespace hpctl
