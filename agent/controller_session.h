// SPDX-License-Identifier: Apache-2.0
// The agent's connection to its current controller: when it tries to connect, when a silent stream
// counts as dead, when it starts a controller because it can reach none, and when the node has been
// without one for too long. controller_access.h reaches and starts controllers; the agent handles
// the messages.
//
//   no stream ──connect──► registered ──Welcome──► open ──┐
//       ▲  pause (Backoff)     │ no Welcome, another       │ closed, reports not acknowledged,
//       └──────────────────────┴── controller has the job ─┴── cut on purpose
//
// Code that reads the job's directory, or waits for a controller to start, runs in a thread beside
// the agent's (side_task.h), one task at a time: the agent has a liveness deadline, and the file
// server need not answer.
//
// Own thread only: the agent calls read() and on_time() when the eventfd rings, and on_time() at
// due_ms().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/controller_access.h"
#include "agent/core/reconnect.h"
#include "agent/fault_injecting_link.h"
#include "agent/side_task.h"
#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/job/ids.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl::agent {

class ControllerSession {
 public:
  struct Agent {
    // The first message of a stream.
    std::function<v1::AgentMessage()> registration;
    // A message of this job. False: the node ends, and nothing more is read. Calls welcomed() for a
    // Welcome.
    std::function<bool(const v1::ControllerMessage&)> on_message;
  };
  // Why the node is to be ended.
  struct Hopeless {
    int exit_code = 0;
    std::string reason;
    uint32_t grace_ms = 1'000;  // for the workers
  };

  // `wake_fd` is an eventfd, which rings when there is something to read(), or an answer for
  // on_time(). It and `clock` outlive this.
  ControllerSession(JobId job, std::unique_ptr<ControllerAccess> access, int wake_fd,
                    const Clock& clock, Agent agent);

  // Between a Welcome and the end of its stream.
  bool is_open() const { return is_open_; }
  // This node's address as the controller reaches it; "" = no other node does.
  std::string address() const { return access_->address(); }

  // Precondition of these two: is_open(), or a message of the stream is being handled.
  void send(const v1::AgentMessage& message) { link_->send(message); }
  FaultInjectingLink& link() { return *link_; }  // for faults on purpose
  // The controller must acknowledge it in time; without a session it is not sent.
  void send_report(const v1::AgentMessage& message);

  void welcomed(const v1::Welcome& welcome);
  // `more_wait`: other reports wait for their acknowledgement.
  void acknowledged(bool more_wait);
  // The holder got a signal to end. Each controller is told, now or when it is connected. If it
  // goes away instead of ordering something, the job ends with it (a requeue): on_time() says so.
  void told_to_end(v1::AgentMessage message);
  // A step was completed, which takes every rank of the job.
  void trained(int64_t now_ms) { orphan_.trained(now_ms); }
  // An injected fault: for this long no controller is reached.
  void cut(int64_t duration_ms) { cut_until_ms_ = clock_.monotonic_ms() + duration_ms; }

  void read();
  // Reads messages that an injected fault delayed and that are due.
  void read_delayed(int64_t now_ms);
  // `needs_controller`: one is started where there is none.
  std::optional<Hopeless> on_time(int64_t now_ms, bool needs_controller);
  int64_t due_ms() const;
  // Something waits for a file server, or for a controller that starts. A process that ends then
  // leaves by _exit().
  bool is_waiting() const { return side_.is_busy(); }

 private:
  template <typename Answer>
  void ask(std::function<Answer()> question, std::function<std::optional<Hopeless>(Answer)> then);
  void connect();
  std::optional<Hopeless> dialled(Result<ControllerAccess::Dialled> dialled);
  void look_for_successor(int64_t now_ms);
  void start_controller();
  void drop(const std::string& why);

  const JobId job_;
  const std::unique_ptr<ControllerAccess> access_;  // of the side task while one runs
  const int wake_fd_;
  const Clock& clock_;
  const Agent agent_;
  Rng rng_;
  OrphanWatch orphan_;
  Backoff backoff_;
  Patience patience_;  // likewise

  std::unique_ptr<FaultInjectingLink> link_;
  bool is_open_ = false;
  std::optional<v1::AgentMessage> told_to_end_;
  bool is_left_alone_ = false;  // told to end, and the controller went away
  std::string last_trouble_;    // logged when it changes
  int64_t connect_at_ms_ = 0;
  int64_t cut_until_ms_ = 0;
  int64_t welcome_by_ms_ = 0;
  int64_t look_again_at_ms_ = 0;  // for a newer controller, before the welcome
  int64_t acknowledge_by_ms_ = INT64_MAX;

  std::function<std::optional<Hopeless>()> then_;  // when the side task has ended
  SideTask side_;                                  // last: it uses the rest
};

}  // namespace hpctl::agent
