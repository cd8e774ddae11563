// SPDX-License-Identifier: Apache-2.0
// The holder's memory for the agent proper, which may die at any instruction: each new one gets
// everything that earlier ones knew. That is which generations the node has seen and which were
// ended, which workers of the newest one have ended, the exits that no report covers yet, and the
// reports that no controller has acknowledged (agent/holder/holder_protocol.h has the messages).
// Values only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/holder/holder_protocol.h"

namespace hpctl::holder {

class AgentMemory {
 public:
  AgentMemory(std::string boot_id, uint64_t holder_pid);

  const Hello& facts() const { return hello_; }
  void has_probe_port(uint32_t port) { hello_.probe_port = port; }

  // A generation has come to this node; who has ended is forgotten where it is a newer one.
  void saw(uint64_t generation);
  // Those up to this one were ended by Kill.
  void ended_through(uint64_t generation);
  // A worker has ended: numbers its exit and keeps it until a report covers it.
  const Exited& keep(Exited exit);
  // The last state of a process with a rank; it counts if it was of the newest generation.
  void ended(const WorkerState& worker);
  void keep(KeepReport report);
  void drop(const DropReport& report) { reports_.erase(report.seq); }

  // The greeting of an agent, in its order; `tell_living` adds the processes that live.
  void tell(const std::function<void(const ToAgent&)>& send,
            const std::function<void()>& tell_living) const;

 private:
  Hello hello_;
  std::vector<WorkerState> ended_;
  std::map<uint64_t, Exited> exits_;         // by number
  std::map<uint64_t, std::string> reports_;  // by their sequence
  uint64_t last_exit_ = 0;
};

}  // namespace hpctl::holder
