// SPDX-License-Identifier: Apache-2.0
// A ControllerLink with the network faults of `hpctl chaos`. All messages pass through here, in
// both directions and in their order, and mostly at once.
//
//   delay   messages within kDelaysLastMs of the order, in both directions, are delivered kDelayMs
//           later; later messages do not overtake them.
//   lose    messages within kLossMs of the order, in both directions, are lost, and so is the end
//           of the stream: neither side notices it. Then the stream breaks, as with TCP: a
//           connection that loses some messages and keeps later ones does not exist.
//
// Own thread only; the caller looks again at next_deadline_ms().
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "agent/controller_link.h"
#include "common/base/clock.h"

namespace hpctl::agent {

class FaultInjectingLink {
 public:
  // `wake_fd` is an eventfd that outlives the link.
  FaultInjectingLink(const std::shared_ptr<grpc::Channel>& channel, int wake_fd, const Clock& clock)
      : link_(channel, wake_fd), clock_(clock) {}

  void delay_messages();
  void lose_messages();

  void send(const v1::AgentMessage& message);
  // The next message that has arrived.
  std::optional<v1::ControllerMessage> receive();
  // The stream has ended or is broken; receive() has no more messages of it.
  bool closed() const;
  std::string finish() { return link_.finish(); }

  // Sends what is due by now.
  void on_time();
  // Of on_time(), or of receive() and closed(); INT64_MAX = none.
  int64_t next_deadline_ms() const;

 private:
  template <typename Message>
  struct Delayed {
    int64_t due_ms = 0;
    Message message;
  };

  bool loses() const { return clock_.monotonic_ms() < broken_at_ms_ && broken_at_ms_ != INT64_MAX; }
  int64_t due_ms() const;

  ControllerLink link_;
  const Clock& clock_;
  int64_t delay_until_ms_ = 0;
  int64_t broken_at_ms_ = INT64_MAX;  // until then messages are lost
  std::deque<Delayed<v1::AgentMessage>> outgoing_;
  std::deque<Delayed<v1::ControllerMessage>> incoming_;
};

}  // namespace hpctl::agent
