// SPDX-License-Identifier: Apache-2.0
// A thousand agents that only heartbeat, each on a connection of its own, in a process of their
// own; and the part of the controller that listens to them: listener, gRPC, owner loop, store.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "common/base/fd.h"

namespace hpctl::bench {

class IdleAgents {
 public:
  // Forks the process of the agents; construct before this process has threads. They connect to
  // the controller of `home` after go().
  IdleAgents(const std::string& home, int agents);
  ~IdleAgents();  // ends the process
  IdleAgents(const IdleAgents&) = delete;
  IdleAgents& operator=(const IdleAgents&) = delete;
  void go();

 private:
  UniqueFd control_;  // a byte starts the agents, the end of the pipe ends them
  pid_t child_ = -1;
};

class AgentServer {
 public:
  // Serves a job of `agents` nodes with 8 workers each whose nodes wait for their agents.
  AgentServer(const std::string& home, int agents);
  ~AgentServer();
  AgentServer(const AgentServer&) = delete;
  AgentServer& operator=(const AgentServer&) = delete;
  void wait_until_connected();
  uint64_t heartbeats() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace hpctl::bench
